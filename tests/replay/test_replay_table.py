"""Reading a table: its content, what follows from the content, and the errors of a damaged table."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pytest
from tests_loop import CASE
from tests_table import FITS, READY_S, study, workbench

from tuner.errors import StudyError
from tuner.export.recorded_table import Table
from tuner.probe.metrics import measured
from tuner.probe.result import FailureKind

if TYPE_CHECKING:
    from conftest import Made


def test_each_row_is_the_result_that_was_recorded(made: "Made") -> None:
    for result in made.results:
        row = made.table.find(result.config)
        assert row is not None
        assert row.result == replace(result, plan_digest="", host={})
        assert measured(row.result) == measured(result)


def test_the_space_is_the_recorded_one(made: "Made", tmp_path: Path) -> None:
    assert made.table.space == workbench(tmp_path, study()).space_for(CASE)
    assert len(made.table.configs) == len(made.results)


def test_patience_does_not_count(made: "Made") -> None:
    config = made.results[0].config
    assert made.table.find({**config, "pruner_patience": 3}) == made.table.find(config)


def test_a_config_that_needs_at_least_as_much_memory_as_one_that_ran_out_also_runs_out(made: "Made") -> None:
    row = made.table.find({"num_envs": 4 * FITS, "agent_variant": "default", "num_workers": 1})
    assert row is not None
    assert row.result.failure is not None
    assert row.result.failure.kind is FailureKind.GPU_OOM


def test_what_was_not_recorded_is_unknown(made: "Made") -> None:
    assert made.table.find({"num_envs": 48, "agent_variant": "default", "num_workers": 0}) is None


def test_sessions_take_what_they_took(made: "Made") -> None:
    assert made.table.session_s("command/walk/num_envs=8") == READY_S
    assert made.table.session_s("never started") == READY_S


def test_a_session_that_was_never_seen_starting_takes_the_usual_time(made: "Made") -> None:
    late = [row for row in map(made.table.find, made.table.configs) if row]
    starts = [
        replace(row, result=replace(row.result, ready_s=ready_s))
        for row, ready_s in zip(late, (4.0, 6.0), strict=False)
    ]
    keys = ["a", "b"]
    table = Table(made.table.header, [replace(row, session_key=key) for row, key in zip(starts, keys, strict=True)])
    assert (table.session_s("a"), table.session_s("c")) == (4.0, 5.0)


def test_the_last_probe_of_a_config_counts(made: "Made") -> None:
    row = made.table.find(made.results[0].config)
    assert row is not None
    later = replace(row, result=replace(row.result, total_s=1.0))
    assert Table(made.table.header, [row, later]).find(row.result.config) == later


@pytest.fixture
def copied(made: "Made", tmp_path: Path) -> Path:
    """Return a copy of the table that a test may damage."""
    for path in (made.path, made.path.with_suffix(".json")):
        shutil.copy(path, tmp_path)
    return tmp_path / made.path.name


def edited(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    header = json.loads(path.with_suffix(".json").read_text())
    edit(header)
    path.with_suffix(".json").write_text(json.dumps(header))


def rewritten(path: Path, edit: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    edit(pd.read_parquet(path, dtype_backend="pyarrow")).to_parquet(path)


def refused(path: Path, *words: str) -> None:
    with pytest.raises(StudyError) as refusal:
        Table.load(path)
    for word in words:
        assert word in str(refusal.value)


def test_a_table_without_its_header(copied: Path) -> None:
    copied.with_suffix(".json").unlink()
    refused(copied, "walk.json", "No such file", "both files")


def test_a_header_without_its_table(copied: Path) -> None:
    copied.unlink()
    refused(copied, "there is no table", "walk.parquet", "`tuner record`")


@pytest.mark.parametrize("content", [b"", b"PAR1 but not really PAR1", b"case\tstatus\n"])
def test_a_file_that_is_no_table(copied: Path, content: bytes) -> None:
    copied.write_bytes(content)
    refused(copied, "walk.parquet", "cannot be read")


def test_a_table_cut_off(copied: Path) -> None:
    copied.write_bytes(copied.read_bytes()[:-100])
    refused(copied, "walk.parquet", "cannot be read")


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda header: header.update(schema_version="2.0.0"), ["schema_version", "1.0.0"]),
        (lambda header: header.pop("space"), ["space", "required"]),
        (lambda header: header.update(objective="utilisation"), ["'utilisation'", "unknown"]),
        (lambda header: header.update(colour="blue"), ["colour"]),
        (lambda header: header.update(rows=7), ["7", "rows"]),
        (lambda header: header["space"].pop("num_workers"), ["walk.parquet", "num_workers"]),
        (lambda header: header["space"]["num_envs"].update(ladder=[8, 16]), ["num_envs", "no config of the space"]),
        (lambda header: header["trainer"].pop("name"), ["name"]),
        (lambda header: header.update(devices=[]), ["devices", "at least 1 item"]),
    ],
    ids=["version", "no-space", "objective", "unknown-key", "rows", "columns", "configs", "trainer", "devices"],
)
def test_a_header_that_does_not_fit(copied: Path, edit: Callable[[dict[str, Any]], object], words: list[str]) -> None:
    edited(copied, edit)
    refused(copied, *words)


def test_a_header_that_is_no_json(copied: Path) -> None:
    copied.with_suffix(".json").write_text("{")
    refused(copied, "walk.json", "JSON")


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda frame: frame.drop(columns="status"), ["status"]),
        (lambda frame: frame.drop(columns="min_avg_util"), ["differ in the column(s) min_avg_util"]),
        (lambda frame: frame.assign(total_s="long"), ["'long'"]),
        (lambda frame: frame.assign(failure_kind="bad_luck"), ["bad_luck"]),
        (lambda frame: frame.assign(devices="[{}]"), ["device"]),
        (lambda frame: frame.assign(devices="many"), ["walk.parquet"]),
        (lambda frame: frame.assign(devices="[1]"), ["walk.parquet"]),
        (lambda frame: frame.head(0), ["0 rows"]),
        (lambda frame: frame.assign(total_s=None), ["has no total_s"]),
        (lambda frame: frame.assign(total_s=float("inf")), ["has no total_s"]),
        (lambda frame: frame.assign(colour="blue"), ["walk.parquet", "differ in the column(s) colour"]),
        (lambda frame: frame.assign(total_s=1e300), ["total_s cannot be 1e+300"]),
        (lambda frame: frame.assign(iterations=-1), ["iterations cannot be -1"]),
        (lambda frame: frame.assign(iterations=0), ["has a window, and no iterations"]),
        (lambda frame: frame.assign(devices="[" * 100_000), ["walk.parquet cannot be read: maximum recursion depth"]),
    ],
    ids=[
        *(
            "column",
            "objective",
            "type",
            "failure",
            "device",
            "devices",
            "number",
            "empty",
            "no-time",
            "infinite-time",
            "surplus",
        ),
        *("endless", "negative", "none", "deep"),
    ],
)
def test_rows_that_do_not_fit(copied: Path, edit: Callable[[pd.DataFrame], pd.DataFrame], words: list[str]) -> None:
    rewritten(copied, edit)
    refused(copied, *words)


def test_a_table_that_fills_the_memory_is_refused(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(_: object) -> pa.Table:
        raise pa.ArrowMemoryError("malloc of size 68719476736 failed")

    monkeypatch.setattr("pyarrow.parquet.ParquetFile.read", fill)
    with pytest.raises(StudyError, match="cannot be read: malloc of size"):
        Table.load(copied)


def test_a_metric_that_is_newer_than_a_table_is_unknown_in_it(made: "Made", copied: Path) -> None:
    rewritten(copied, lambda table: table.drop(columns=["trained_s", "min_avg_dram"]))
    table = Table.load(copied)
    for config in table.configs:
        before, after = made.table.find(config), table.find(config)
        assert before is not None
        assert after == before  # without a thin iteration, nothing changes


def test_a_fact_of_a_device_that_is_no_longer_kept_is_passed_over(made: "Made", copied: Path) -> None:
    older = '{"window_s": 2.0, "device": '
    rewritten(copied, lambda frame: frame.assign(devices=frame["devices"].str.replace('{"device": ', older)))
    assert [Table.load(copied).find(config) for config in made.table.configs] == [
        made.table.find(config) for config in made.table.configs
    ]


def test_a_number_that_is_not_finite_is_unknown(copied: Path) -> None:
    rewritten(copied, lambda frame: frame.assign(devices=frame["devices"].str.replace(r"[\d.]+", "NaN", regex=True)))
    table = Table.load(copied)
    rows = [row.result for row in map(table.find, table.configs) if row]
    assert [one for one in rows if one.ok]
    assert all(measured(one)["min_avg_util"] is None for one in rows)
