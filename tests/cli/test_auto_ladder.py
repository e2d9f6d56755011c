"""The commands on a study whose ladder is `auto`: before its rungs are made, while they are made, and afterwards."""

from pathlib import Path

import pandas as pd
import pytest
from tests_cli import Tuner, study_file

FIRST = "num_envs is auto: it follows from the first probes"
MADE = "is auto: 2 4 8 16, fixed in this study"


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return study_file(tmp_path, space={"num_envs": {"ladder": "auto", "min": 2, "max": 16}})


def test_a_plan_before_calibration_is_its_first_probe(tuner: Tuner, study: Path) -> None:
    code, out, _ = tuner("plan", "--study", study)
    assert code == 0
    assert out.startswith(f'# walk: {FIRST}\n# walk: {{"num_envs": 4}}\n')
    assert '# walk: {"num_envs": 8}' in tuner("plan", "--study", study, "--set", "num_envs=8")[1]


def test_optimize_makes_the_rungs_and_every_command_keeps_them(tuner: Tuner, study: Path) -> None:
    code, out, err = tuner("optimize", "--study", study, "--n-trials", 2)
    assert (code, err) == (0, "")
    assert f"case walk: {FIRST}" in out
    assert f"case walk: num_envs {MADE}" in out
    assert "2 of 2 trials done" in out
    assert "2 trials now" in out
    code, out, _ = tuner("optimize", "--study", study, "--n-trials", 4)
    assert (code, FIRST in out, MADE in out) == (0, False, True)
    assert f"  the ladder {MADE}" in tuner("status", "--study", study)[1]
    assert tuner("plan", "--study", study)[1].startswith('# walk: {"num_envs": 16}\n')
    assert tuner("recover", "--study", study)[0] == tuner("export", "--study", study)[0] == 0


def test_a_plan_uses_the_database_of_the_option(tuner: Tuner, study: Path, tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path / 'elsewhere.db'}"
    tuner("optimize", "--study", study, "--n-trials", 2, "--storage", storage)
    assert FIRST in tuner("plan", "--study", study)[1]
    assert FIRST not in tuner("plan", "--study", study, "--storage", storage)[1]
    assert tuner("plan", "--study", study, "--storage", "sqlite:///nowhere.db")[0] == 2


def test_a_recording_makes_rungs_of_its_own_and_is_replayed(tuner: Tuner, study: Path, tmp_path: Path) -> None:
    code, out, err = tuner("record", "--study", study, "--configs", 1)
    assert (code, err) == (0, "")
    assert f"case walk: {FIRST}" in out
    assert "0 of 1 left" in out
    code, out, _ = tuner("record", "--study", study)
    assert (code, FIRST in out, "4 configs recorded, 0 of 4 left" in out) == (0, False, True)
    table = tmp_path / "runs/demo/tables/walk.parquet"
    assert sorted(pd.read_parquet(table)["num_envs"]) == [2, 4, 8, 16]
    code, out, err = tuner("optimize", "--study", study, "--replay", table)
    assert (code, err, FIRST in out) == (0, "", False)


def test_the_error_that_stops_calibration_is_shown_and_the_tables_are_written(tuner: Tuner, study: Path) -> None:
    (study.parent / "train.py").write_text("import trimesh_that_is_not_there\n")
    code, out, err = tuner("optimize", "--study", study)
    assert (code, "missing_dependency" in err, "trimesh_that_is_not_there" in err) == (2, True, True)
    assert "report: runs/demo/report.html; beside it best_by_case.tsv" in out
    code, out, _ = tuner("record", "--study", study)
    assert (code, "walk: 1 config recorded, 3 of 4 left" in out) == (2, True)
