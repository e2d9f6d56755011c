"""The command while it starts, run as `python -m tuner`."""

import signal
import subprocess
import sys

TERMINAL = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
"""Handles SIGINT as a terminal would start the process, however these tests were started."""
WHILE_LOADING = """
import runpy, signal, sys
class Interrupt:
    def find_spec(self, name, *_):
        if name == "tuner.cli.main":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
sys.argv[1:] = ["--version"]
runpy.run_module("tuner", run_name="__main__")
"""


def started(code: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_ctrl_c_while_it_loads_ends_it_without_a_word() -> None:
    ended = started(TERMINAL + WHILE_LOADING)
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")


def test_where_ctrl_c_is_ignored_the_command_goes_on() -> None:
    ended = started("import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)" + WHILE_LOADING)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("tuner ")
