"""`tuner.optimize`: a search from a program."""

from pathlib import Path

import pytest
from tests_cli import study_file

import tuner
from tuner.devices.cpu import CpuSource
from tuner.devices.power import Rapl
from tuner.optimizing import check_energy
from tuner.running.events import Event, ProbeEnded, StudyStarted
from tuner.study import load

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
    kept = (runs / "demo" / "study.yaml").read_text()
    assert (kept.startswith(f"# a copy of {study}, "), kept.endswith(Path(study).read_text())) == (True, True)
    (outcome,) = tuner.optimize(study=study, trials=2, runs=runs).outcomes
    assert outcome.probed == 0


@pytest.mark.parametrize("named", [{}, {"command": ["train.py"], "study": "demo"}])
def test_one_of_command_and_study_is_named(named: dict[str, object]) -> None:
    with pytest.raises(tuner.TunerError, match="either a command or a study"):
        tuner.optimize(**named)  # pyright: ignore[reportArgumentType]


def test_a_study_that_needs_energy_is_refused_where_none_is_shown(tmp_path: Path) -> None:
    source = CpuSource(2, rapl=Rapl(tmp_path))
    check_energy(load(str(study_file(tmp_path))), source)
    study = str(study_file(tmp_path, objective="samples_per_s,joules_per_sample", constraints={"energy_j": "<= 9"}))
    with pytest.raises(tuner.TunerError, match=r"energy_j, samples_per_joule needs the energy of cpu:0"):
        check_energy(load(study), source)
