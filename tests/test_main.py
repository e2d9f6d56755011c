"""The command while it starts, run as `python -m tuner`."""

import json
import signal
import subprocess
import sys

import pytest

from tuner.cli.main import Commands

TERMINAL = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
"""Handles SIGINT as a terminal would start the process, however these tests were started."""
WHILE_LOADING = """
import runpy, signal, sys
class Interrupt:
    def find_spec(self, name, *_):
        if name == "{module}":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
sys.argv[1:] = {words}
runpy.run_module("tuner", run_name="__main__")
"""
MODULES = """
import json, sys
from importlib import import_module
for name in sys.argv[1:]:
    import_module(name)
print(json.dumps(sorted(sys.modules)))
"""
ALL, STATUS = ("tuner.cli.main", ["--version"]), ("tuner.cli.show", ["status", "--help"])
HEAVY = {"numpy", "optuna", "pandas", "psutil", "pyarrow", "pynvml", "torch"}
"""What `tuner status` and `tuner export` do without; each takes a tenth of a second or more."""


def started(code: str, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("module", "words"), [ALL, STATUS])
def test_ctrl_c_while_it_loads_ends_it_without_a_word(module: str, words: list[str]) -> None:
    ended = started(TERMINAL + WHILE_LOADING.format(module=module, words=words))
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")


def test_where_ctrl_c_is_ignored_the_command_goes_on() -> None:
    module, words = ALL
    ignored = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
    ended = started(ignored + WHILE_LOADING.format(module=module, words=words))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("tuner ")


def test_showing_and_exporting_load_no_package_of_the_search() -> None:
    loaded = set(json.loads(started(MODULES, "tuner.cli.main", "tuner.cli.show").stdout))
    assert {"tuner.export.tables", "sqlalchemy"} <= loaded
    assert HEAVY & loaded == set()


def test_a_search_loads_no_package_of_tables_and_plots() -> None:
    loaded = set(json.loads(started(MODULES, "tuner.cli.main", "tuner.cli.optimize").stdout))
    assert {"tuner.optimizing", "optuna"} <= loaded
    assert {"pandas", "plotly", "pyarrow", "torch"} & loaded == set()


def test_the_list_of_commands_has_a_line_for_each() -> None:
    commands = Commands(name="tuner").commands
    assert str(commands["try"].help).startswith("Probe one config")
    assert [name for name, command in commands.items() if not command.help] == []
