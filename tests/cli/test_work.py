"""Signals that ask a probing command to stop."""

import signal

import pytest
from tests_forks import Forks

TERMINAL = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)"
"""Handles SIGHUP as a terminal would start the process, however these tests were started."""
HEED = """
import signal, sys
from rich.console import Console
from tuner.cli.work import interruptible
with interruptible(Console()) as asked:
    signal.raise_signal(getattr(signal, sys.argv[1]))
    print("goes on")
sys.exit(0 if asked.is_set() else 3)
"""


@pytest.mark.parametrize(("name", "says"), [("SIGINT", True), ("SIGTERM", True), ("SIGHUP", False)])
def test_it_is_asked_to_stop_and_writes_to_no_terminal_that_is_gone(processes: Forks, name: str, says: bool) -> None:
    ended = processes.run(TERMINAL + HEED, name)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ("all results are kept" in ended.stdout) is says
    assert ("goes on" in ended.stdout) is says


def test_what_nohup_starts_goes_on(processes: Forks) -> None:
    ended = processes.run("import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)" + HEED, "SIGHUP")
    assert ended.returncode == 3
    assert "goes on" in ended.stdout


def test_a_second_ctrl_c_ends_it_at_once(processes: Forks) -> None:
    code = HEED.replace("    print", "    signal.raise_signal(signal.SIGINT)\n    print")
    ended = processes.run(TERMINAL + code, "SIGTERM")
    assert ended.returncode == -signal.SIGINT
    assert "goes on" not in ended.stdout
