"""Commands as processes of their own: signals ask them to stop, and nobody takes what they print."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests_cli import study_file
from tests_forks import Forks, forks

pytestmark = pytest.mark.usefixtures("tuner")

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
TUNER = "from tuner.cli.main import main; main()"
NOBODY_READS = "import os; reader, writer = os.pipe(); os.dup2(writer, 1); os.close(reader); os.close(writer)\n"


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """Processes of their own, each a fork of one that has loaded the command line.

    That one ends with the file: other files check that nothing of theirs still runs.
    """
    with forks(tmp_path_factory.mktemp("forks")) as ready:
        yield ready


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


@pytest.mark.parametrize("command", [["cases"], ["schema"], ["plan"]], ids=" ".join)
def test_output_to_a_full_disk_is_refused(processes: Forks, tmp_path: Path, command: list[str]) -> None:
    arguments = command if command == ["schema"] else [*command, "--study", str(study_file(tmp_path))]
    done = processes.run(TUNER, *arguments, stdout=Path("/dev/full"))
    assert (done.returncode, done.stderr.count("tuner: ")) == (2, 1)
    assert "No space left on device; free some disk space" in " ".join(done.stderr.split())


@pytest.mark.parametrize("command", [["cases"], ["schema"]], ids=" ".join)
def test_a_reader_that_has_seen_enough_ends_the_command_quietly(
    processes: Forks, tmp_path: Path, command: list[str]
) -> None:
    arguments = command if command == ["schema"] else [*command, "--study", str(study_file(tmp_path))]
    assert processes.run(NOBODY_READS + TUNER, *arguments).stderr == ""
