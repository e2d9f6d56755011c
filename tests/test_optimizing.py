"""`tuner.optimize`: a search from a program."""

import math
import shlex
from pathlib import Path

import pytest
from tests_cli import study_file

import tuner
from tuner.devices.cpu import CpuSource, Rapl
from tuner.drafting.writing import origin_line
from tuner.optimizing import check_energy
from tuner.running.events import Event, ProbeEnded, StudyStarted
from tuner.study import load

pytestmark = pytest.mark.early


def test_a_study_is_searched_and_a_second_call_resumes_it(tmp_path: Path) -> None:
    lines: list[str] = []
    events: list[Event] = []
    study, runs = str(study_file(tmp_path)), tmp_path / "runs"
    result = tuner.optimize(study=study, trials=2, runs=runs, say=lines.append, listener=events.append)
    assert result.best == {"num_envs": 16}
    assert (result.command, result.lines, result.stopped) == (None, (), None)
    assert repr(result) == "Result(best={'num_envs': 16}, gain=None, command=None, stopped=None)"
    assert [line.split()[0] for line in lines if "num_envs=" in line] == ["#0", "#1"]
    assert list(result.trials()["num_envs"]) == [8, 16]
    assert isinstance(events[0], StudyStarted)
    assert sum(isinstance(event, ProbeEnded) for event in events) == 2
    assert (runs / "demo" / "best_by_case.tsv").is_file()
    kept = (runs / "demo" / "study.yaml").read_text()
    assert (kept.startswith(f"# a copy of {study}, "), kept.endswith(Path(study).read_text())) == (True, True)
    (outcome,) = tuner.optimize(study=study, trials=2, runs=runs).outcomes
    assert outcome.probed == 0
    cut = tuner.optimize(study=study, hours=1e-9, runs=runs)
    assert (cut.best, cut.lines) == (result.best, (cut.stopped,))
    assert "of hours are over" in str(cut.stopped)


def test_a_time_that_is_over_before_anything_begins_is_told(tmp_path: Path) -> None:
    with pytest.raises(tuner.TunerError, match="of hours are over"):
        tuner.optimize(study=str(study_file(tmp_path)), hours=1e-9, runs=tmp_path / "runs")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "either a command or a study"),
        ({"command": ["train.py"], "study": "demo"}, "either a command or a study"),
        ({"study": "demo", "trials": 0}, "trials is 0; give at least 1"),
        ({"study": "demo", "hours": -1.0}, "hours is -1.0; give at least 0"),
        ({"study": "demo", "hours": math.nan}, "hours is nan"),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused_at_once(given: dict[str, object], words: str) -> None:
    with pytest.raises(tuner.TunerError, match=words):
        tuner.optimize(**given)  # pyright: ignore[reportArgumentType]


def test_an_error_names_what_is_wrong() -> None:
    with pytest.raises(tuner.TunerError, match="'a b' names no study"):
        tuner.optimize("python train.py", name="a b")
    with pytest.raises(tuner.TunerError, match="a b=8: write"):
        tuner.optimize("python train.py", search={"a b": "8"})


def test_an_error_names_the_arguments_of_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("studies").mkdir()
    Path("studies/train.yaml").write_text("name: train\n")
    with pytest.raises(tuner.TunerError, match=r"give force to overwrite it, or another name$"):
        tuner.optimize("python train.py")
    with pytest.raises(tuner.TunerError, match="leave out cases and devices"):
        tuner.optimize(study="demo", replay="table.parquet", cases=["a"])


@pytest.mark.parametrize("line", ["  ", "python 'train.py"])
def test_a_command_line_without_words_is_refused(line: str) -> None:
    with pytest.raises(tuner.TunerError, match=r"either a command or a study|close the quote"):
        tuner.optimize(line)


def test_a_study_has_a_space_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(tuner.TunerError, match="a study has its own space"):
        tuner.optimize(study=str(study_file(tmp_path)), search={"num_envs": [8]})


def test_force_makes_the_study_of_a_command_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["python", "gone.py", "--workers", "0"]
    Path("studies").mkdir()
    Path("studies/gone.yaml").write_text(f"{origin_line(command)}\nname: gone\n")
    for force in (False, True):
        said: list[str] = []
        with pytest.raises(tuner.TunerError):
            tuner.optimize(shlex.join(command), devices="cpu:1", force=force, say=said.append)
        assert any("watching the command" in line for line in said) is force


def test_a_study_that_needs_energy_is_refused_where_none_is_shown(tmp_path: Path) -> None:
    source = CpuSource(2, rapl=Rapl(tmp_path))
    check_energy(load(str(study_file(tmp_path))), source)
    study = str(study_file(tmp_path, objective="samples_per_s,joules_per_sample", constraints={"energy_j": "<= 9"}))
    with pytest.raises(tuner.TunerError, match=r"energy_j, samples_per_joule needs the energy of cpu:0"):
        check_energy(load(study), source)
