"""How a command that probes is asked to stop."""

import signal
import subprocess
import sys

import pytest

TERMINAL = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)"
"""As a terminal starts it, however these tests were started."""
HEED = """
import signal, sys
from rich.console import Console
from tuner.cli.work import interruptible
with interruptible(Console()) as asked:
    signal.raise_signal(getattr(signal, sys.argv[1]))
    print("goes on")
sys.exit(0 if asked.is_set() else 3)
"""


def after(name: str, code: str = TERMINAL + HEED) -> "subprocess.CompletedProcess[str]":
    """Let a tuner of its own be sent a signal while it works, and go on."""
    return subprocess.run([sys.executable, "-c", code, name], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("name", "says"), [("SIGINT", True), ("SIGTERM", True), ("SIGHUP", False)])
def test_it_is_asked_to_stop_and_writes_to_no_terminal_that_is_gone(name: str, says: bool) -> None:
    ended = after(name)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ("everything measured is kept" in ended.stdout) is says
    assert ("goes on" in ended.stdout) is says


def test_what_nohup_starts_goes_on() -> None:
    ended = after("SIGHUP", "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)" + HEED)
    assert ended.returncode == 3
    assert "goes on" in ended.stdout


def test_a_second_ctrl_c_ends_it_at_once() -> None:
    ended = after("SIGTERM", HEED.replace("    print", "    signal.raise_signal(signal.SIGINT)\n    print"))
    assert ended.returncode == -signal.SIGINT
    assert "goes on" not in ended.stdout
