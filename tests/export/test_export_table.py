"""The table of a recorded case: rows, header and T4 words."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from tests_table import SPACE, MadeUp, recorded, study

from tuner.errors import StoreError
from tuner.export.recorded_table import Circumstances, Header, columns, export_tables
from tuner.probe.metrics import METRICS
from tuner.probe.probe_plan import Device
from tuner.study.spec import ParameterSpec, ProbeSpec

if TYPE_CHECKING:
    from conftest import FilledDatabase
    from optuna import Study

CIRCUMSTANCES = Circumstances(
    space={"num_envs": ParameterSpec(ladder=(8, 16)), "batch_size": ParameterSpec(choices=(1, 0.5))},
    limits=ProbeSpec(),
    machine={"cpu": "x"},
    devices=(Device(name="cpu:0", model="x"),),
    commit=None,
)


def case(database: "FilledDatabase", name: str = "walk") -> "Study":
    """Start the recording of a case."""
    return database.case(name, recording=CIRCUMSTANCES.model_dump(mode="json"))


def exported(database: "FilledDatabase", folder: Path) -> list[str]:
    return [path.name for path in export_tables(database.url, "pi_plus", folder)]


def rows(folder: Path, case: str = "walk") -> list[dict[str, Any]]:
    frame = pd.read_parquet(folder / f"{case}.parquet", dtype_backend="pyarrow")
    return frame.astype(object).where(frame.notna(), None).to_dict("records")


def test_whole_numbers_stay_whole_beside_what_does_not_count(tmp_path: Path) -> None:
    recorded(tmp_path, MadeUp(), count=6)
    frame = pd.read_parquet(tmp_path / "walk.parquet", dtype_backend="numpy_nullable")
    assert {str(frame[name].dtype) for name in ("num_envs", "batch_size", "num_workers", "trial")} == {"Int64"}
    assert list(frame["batch_size"].isna()) == list(frame["agent_variant"] == "default")


def test_a_row_holds_metrics_times_and_the_series(tmp_path: Path) -> None:
    prober = MadeUp()
    recorded(tmp_path, prober, count=1)
    (row,) = rows(tmp_path)
    assert row.keys() >= {metric.name for metric in METRICS} | {"min_avg_util_se", "samples_per_s_se"}
    assert (row["total_s"], row["ready_s"], row["iterations"]) == (prober.results[0].total_s, 30.0, 5)
    assert len(row["series"]) == 5
    assert row["series"][-1] == row["min_avg_util"]
    assert row["session_key"] == f"command/walk/num_envs={row['num_envs']}"


def test_the_header_says_how_it_was_recorded(tmp_path: Path) -> None:
    recorded(tmp_path, MadeUp(), count=4)
    raw = json.loads((tmp_path / "walk.json").read_text())
    assert (raw["case"], raw["objective"], raw["unit"], raw["rows"]) == ("walk", "min_avg_util", "%", 4)
    assert raw["space"] == SPACE | {"num_envs": {"ladder": sorted(SPACE["num_envs"]["ladder"])}}
    assert [device["name"] for device in raw["devices"]] == ["cuda:0", "cuda:1"]
    assert raw["date"] == "2026-11-21T10:00:00+00:00"
    assert raw["limits"] == study().probe.model_dump()
    assert Header.model_validate(raw).model_dump(exclude_none=True) == raw | {"devices": tuple(raw["devices"])}


@pytest.mark.parametrize(
    ("status", "launched", "word"),
    [
        ("ok", True, "correct"),
        ("no_reading", True, "correctness"),
        ("gpu_oom", True, "runtime"),
        ("gpu_oom", False, "constraints"),
        ("invalid_config", False, "constraints"),
        ("too_slow", True, "timeout"),
        ("hang", True, "timeout"),
        ("nccl", True, "runtime"),
    ],
)
def test_invalidity_uses_the_words_of_t4(
    database: "FilledDatabase", tmp_path: Path, status: str, launched: bool, word: str
) -> None:
    database.add(case(database), {"num_envs": 8}, status=status, utils=(50.0,), launched=launched)
    exported(database, tmp_path)
    (row,) = rows(tmp_path)
    assert (row["status"], row["invalidity"], row["launched"]) == (status, word, launched)


def test_a_failure_keeps_its_rule_and_detail(database: "FilledDatabase", tmp_path: Path) -> None:
    database.add(case(database), {"num_envs": 8}, status="nccl", detail="no route")
    exported(database, tmp_path)
    (row,) = rows(tmp_path)
    assert (row["failure_kind"], row["failure_rule"], row["failure_detail"], row["failure_rank"]) == (
        "nccl",
        "a rule",
        "no route",
        1,
    )
    assert row["min_avg_util"] is None


def test_what_runs_or_was_interrupted_has_no_row(database: "FilledDatabase", tmp_path: Path) -> None:
    walk = case(database)
    database.add(walk, {"num_envs": 8}, utils=(50.0,))
    database.add(walk, {"num_envs": 16}, status="interrupted")
    database.running(walk)
    exported(database, tmp_path)
    assert [row["num_envs"] for row in rows(tmp_path)] == [8]


def test_each_case_that_was_recorded_and_has_rows_has_a_table_of_its_own(
    database: "FilledDatabase", tmp_path: Path
) -> None:
    for one in (case(database, "walk"), case(database, "run"), database.case("jump")):
        database.add(one, {"num_envs": 16, "batch_size": 0.5}, utils=(50.0,))
    case(database, "rest")
    assert exported(database, tmp_path) == ["walk.parquet", "walk.json", "run.parquet", "run.json"]
    assert rows(tmp_path, "run")[0]["batch_size"] == 0.5


def test_an_unknown_study_writes_nothing(database: "FilledDatabase", tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no study 'pi_plus'"):
        exported(database, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_documentation_names_every_column() -> None:
    pages = Path(__file__).parents[2] / "docs"
    documented = (pages / "recording.md").read_text() + (pages / "tables.md").read_text()
    assert [name for name in columns({}).names if f"`{name}`" not in documented] == []
