"""`tuner race`: a few configs of a search train for the same time."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests_cli import Tuner, study_file
from tests_racing import searched

from tuner.export.reader import StudyReader, connect


def begun(folder: Path) -> Path:
    """Write a study of the tiny trainer, and beside it the database of a search of two rungs."""
    (folder / "runs").mkdir()
    searched(folder / "runs", rungs=[64, 32], variants=["default"])
    measured_on(folder, "[]")  # the search had made-up devices
    return study_file(folder)


def measured_on(folder: Path, devices: str) -> None:
    """Store other devices of the search, as a JSON list; an empty one stands for unknown devices."""
    with closing(sqlite3.connect(folder / "runs/demo/study.db")) as database, database:
        change = "UPDATE study_user_attributes SET value_json = json_set(value_json, '$.devices', json(?))"
        database.execute(change, (devices,))


def test_configs_train_and_the_same_command_adds_nothing(tuner: Tuner, tmp_path: Path) -> None:
    asked = ("race", "--study", begun(tmp_path), "--train-hours", 0.0002, "--seeds", 1)
    code, out, _ = tuner(*asked)
    assert code == 0, out
    assert "round 1: 2 configs with 1 seed" in out
    assert "num_envs=64 (best of the search, default) learns most" in out
    code, again, _ = tuner(*asked)
    assert code == 0
    assert "training num_envs" not in again
    table = "after, s"
    assert again[again.index(table) :] == out[out.index(table) :]
    runs = StudyReader(connect(f"sqlite:///{tmp_path}/runs/demo/study.db"), "demo").cases[0].race
    assert [(run.config["num_envs"], run.seed, bool(run.curve)) for run in runs] == [(64, 0, True), (32, 0, True)]


@pytest.mark.parametrize("command", ["race", "verify"])
def test_speeds_and_scores_on_other_devices_do_not_compare(tuner: Tuner, tmp_path: Path, command: str) -> None:
    study = begun(tmp_path)
    measured_on(tmp_path, '["cuda:0 NVIDIA H200"]')
    code, out, err = tuner(command, "--study", study)
    assert (code, "walk was measured on NVIDIA H200, so speeds" in err) == (2, True)
    assert "devices" not in out  # no trainer was started


def test_a_dry_run_names_the_configs_and_the_rounds_and_trains_nothing(tuner: Tuner, tmp_path: Path) -> None:
    asked = ("race", "--study", begun(tmp_path), "--train-hours", 1, "--dry-run", "--trial", 1)
    code, out, _ = tuner(*asked)
    assert code == 0
    assert "num_envs=64: best of the search, default, min_avg_util 70, samples_per_s 300" in out
    assert "num_envs=32: most samples/s, trial #1" in out
    assert "each config has agent_variant=default" in out
    assert out.endswith("round 1: 2 configs with 2 seeds, 900 s each\n")
    assert not StudyReader(connect(f"sqlite:///{tmp_path}/runs/demo/study.db"), "demo").cases[0].race
    code, _, err = tuner(*asked, "--trial", 77)
    assert code == 2
    assert "--trial 77: walk has no measured trial of this number" in err


def test_a_race_needs_a_search_and_one_case(tuner: Tuner, tmp_path: Path) -> None:
    study = begun(tmp_path)
    code, _, err = tuner("race", "--study", study, "--cases", "run")
    assert code == 2
    assert f"run has no search yet: run `tuner optimize --study {study} --cases run`" in err
    code, _, err = tuner("race", "--study", study, "--cases", "*")
    assert code == 2
    assert "a race is about one case, and * means walk, run; name one with --cases" in err
