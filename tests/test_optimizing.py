"""`tuner.optimize`: a search from a program."""

import shutil
import sys
from pathlib import Path

import pytest
from tests_cli import TRAINED_COMMAND, shorten, study_file

import tuner
from tuner import progress
from tuner.drafting.making import Wanted, made_study, write_study
from tuner.running.events import Event, ProbeEnded, StudyStarted

pytestmark = pytest.mark.early


def test_a_study_is_searched_and_a_second_call_resumes_it(tmp_path: Path) -> None:
    lines: list[str] = []
    events: list[Event] = []
    study, runs = str(study_file(tmp_path)), tmp_path / "runs"
    result = tuner.optimize(study=study, trials=2, runs=runs, say=lines.append, watcher=events.append)
    assert result.best == {"num_envs": 16}
    assert (result.command, result.lines) == (None, ())
    assert list(result.trials()["num_envs"]) == [8, 16]
    assert isinstance(events[0], StudyStarted)
    assert sum(isinstance(event, ProbeEnded) for event in events) == 2
    assert (runs / "demo" / "best_by_case.tsv").is_file()
    (outcome,) = tuner.optimize(study=study, trials=2, runs=runs).outcomes
    assert outcome.probed == 0


def test_a_command_is_searched_and_gives_a_faster_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(TRAINED_COMMAND)
    shutil.copy(progress.__file__, "progress.py")
    command = [sys.executable, "train.py", "-b", "8", "--grad-accum", "2"]
    lines: list[str] = []
    study = write_study(
        made_study(command, Wanted(devices="cpu:1", yes=True), lines.append), lines.append, lines.append
    )
    assert study == "train"
    shorten(Path("studies/train.yaml"))
    result = tuner.optimize(command, trials=4, say=lines.append)
    assert result.best is not None
    assert result.best["batch_size"] == 16
    assert result.gain is not None
    assert result.gain.times > 1.0
    assert result.command is not None
    assert result.command.startswith(f"{sys.executable} train.py -b 16 --grad-accum 1")
    assert any("was made from this command" in line for line in lines)


@pytest.mark.parametrize("named", [{}, {"command": ["train.py"], "study": "demo"}])
def test_one_of_command_and_study_is_named(named: dict[str, object]) -> None:
    with pytest.raises(tuner.TunerError, match="either a command or a study"):
        tuner.optimize(**named)  # pyright: ignore[reportArgumentType]
