from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.tests_loop import opened, reader
from tests.support.tests_racing import searched
from tuner.errors import StoreError
from tuner.export.tables import best_by_case
from tuner.records.case_record import RunRecord
from tuner.store.races import RaceRuns
from tuner.tools.racing import entrants


def test_the_configs_of_a_race_differ_in_kind(tmp_path: Path) -> None:
    found = searched(tmp_path, rungs=[64, 32, 16], variants=["hiutil", "default"])
    (case,) = found.cases
    by_kind = {one.why: (one.config["agent_variant"], one.config["num_envs"]) for one in entrants(case)}
    assert by_kind == {
        "best of the search": ("hiutil", 64),
        "most samples/s": ("default", 32),
        "default": ("default", 64),
        "between": ("hiutil", 32),
    }
    assert entrants(case)[0].measured == {"min_avg_util": 95.0, "samples_per_s": 100.0}


def test_a_race_needs_two_configs(tmp_path: Path) -> None:
    found = searched(tmp_path, rungs=[64], variants=["default"])
    with pytest.raises(StoreError, match="a race of walk needs two configs"):
        entrants(found.cases[0])


def test_the_table_of_the_best_names_the_winner_of_the_race(tmp_path: Path) -> None:
    found = searched(tmp_path, rungs=[64], variants=["default"])
    assert "race_winner" not in best_by_case(found).columns
    with opened(tmp_path / "demo") as database:
        kept = RaceRuns(database, "demo/walk")
        for envs, score, row in ((16, 9.0, "Test_Return"), (64, 1.0, "Train_Return"), (32, 2.0, "Train_Return")):
            whole = RunRecord(config={"num_envs": envs}, seed=0, seconds=60.0, trained_s=60.0, score_source=row)
            kept.add(replace(whole, curve=((1.0, score),)))
        kept.add(RunRecord(config={"num_envs": 32}, seed=0, seconds=30.0, trained_s=30.0, curve=((1.0, 9.0),)))
        kept.add(RunRecord(config={"num_envs": 4}, seed=0, seconds=60.0, trained_s=2.0, curve=((1.0, 120.0),)))
        kept.add(RunRecord(config={"num_envs": 8}, seed=0, seconds=60.0, failure="invalid_config: never launched"))
    (row,) = best_by_case(reader(tmp_path / "demo")).rows
    assert (row["num_envs"], row["race_winner"], row["race_score"]) == (64, "num_envs=32", 2.0)
    assert (row["race_s"], row["race_runs"]) == (60.0, 1)
