"""Writes recorded cases as tables: a Parquet file with a row per probe, and a JSON header, after Kernel Tuner's T4."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field, field_serializer

from tuner import __version__
from tuner.errors import StudyError
from tuner.export.case_view import CaseView
from tuner.export.reader import StudyReader, connect
from tuner.export.write import write_files
from tuner.kept.trial import FINISHED, INTERRUPTED, NO_READING, OK, KeptTrial
from tuner.probe import METRICS, Device, FailureKind
from tuner.study import ParameterSpec, ProbeSpec, Strict


class Circumstances(Strict):
    """How a case is recorded. The case's study keeps this from its start, so that a table can be made at any time."""

    space: dict[str, ParameterSpec]
    """The space as a study file writes it."""
    machine: dict[str, str]
    """The cards, driver, CPU and memory, without the name of the machine."""
    devices: tuple[Device, ...] = Field(min_length=1)
    """The devices, without the identities of single cards."""
    limits: ProbeSpec
    """The limits of each probe."""
    commit: str | None = None
    """The commit of the trainer's checkout, with `-dirty` if files differ from the commit."""

    @field_serializer("space")
    def _without_defaults(self, space: Mapping[str, ParameterSpec]) -> dict[str, Any]:
        return {name: spec.model_dump(mode="json", exclude_defaults=True) for name, spec in space.items()}


class Header(Circumstances):
    """The content of a table's JSON file."""

    schema_version: Literal["1.0.0"] = "1.0.0"
    study: str
    case: str
    files: dict[str, str]
    """The trainer's own files: name of the option → path."""
    objective: str
    unit: str
    """The unit of the objective."""
    source: str
    """What measured utilisation."""
    trainer: dict[str, str]
    """What makes the trainer's results comparable."""
    tuner: str = __version__
    date: str
    """When the last row was measured, in UTC (ISO 8601)."""
    rows: int


HEADER_SUFFIX, TABLE_SUFFIX = ".json", ".parquet"

_TEXT, _WHOLE, _NUMBER, _FLAG = pa.string(), pa.int64(), pa.float64(), pa.bool_()
METRIC_COLUMNS = [name for one in METRICS for name in ((one.name, f"{one.name}_se") if one.error_of else (one.name,))]
"""The columns of each metric: its number, and its standard error if the metric has one."""
_TYPES = {bool: _FLAG, int: _WHOLE, float: _NUMBER, str: _TEXT}
"""The type of a value → the type of its column. Whole numbers beside fractions become fractions."""
_COLUMNS = {
    "trial": _WHOLE,
    **dict.fromkeys(("started_at", "status", "invalidity", "failure_kind", "failure_rule", "failure_detail"), _TEXT),
    "failure_rank": _WHOLE,
    "overshoot_mib": _NUMBER,
    "ineligible": _TEXT,
    **dict.fromkeys(METRIC_COLUMNS, _NUMBER),
    **dict.fromkeys(("ready_s", "total_s"), _NUMBER),
    **dict.fromkeys(("iterations", "samples"), _WHOLE),
    "warm": _FLAG,
    "session_key": _TEXT,
    "launched": _FLAG,
    "series": pa.list_(_NUMBER),
    "devices": _TEXT,
}
_INVALIDITY = {OK: "correct", NO_READING: "correctness", **{kind: kind.invalidity for kind in FailureKind}}


def export_tables(url: str, study: str, folder: Path) -> list[Path]:
    """Write CASE.parquet and CASE.json for each recorded case that has rows; return the files' paths.

    Each ended trial is a row, except interrupted trials, whose configs are probed again. Raises StoreError if the study
    cannot be read, EmptyStoreError if no case has been begun, and OutputError if a file cannot be written.
    """
    reader = StudyReader(connect(url, filled_by="tuner record"), study)
    files: dict[str, Iterable[bytes]] = {}
    for case in reader.cases:
        ended = [trial for trial in case.trials if trial.state in FINISHED and trial.status != INTERRUPTED]
        if case.kept.recording and ended:
            files |= _files(reader, case, ended)
    return write_files(folder, files)


def columns(space: Mapping[str, ParameterSpec]) -> pa.Schema:
    """Return the columns of a table over `space`: the parameters, then the columns that all tables have.

    Raises StudyError if a parameter has the name of another column, or has values of several kinds.
    """
    if taken := sorted(space.keys() & _COLUMNS.keys()):
        raise StudyError(f"{', '.join(taken)}: each table already has a column of that name; rename the parameter")
    return pa.schema({name: _type(name, parameter) for name, parameter in space.items()} | _COLUMNS)


def _type(name: str, parameter: ParameterSpec) -> pa.DataType:
    kinds = {type(value) for value in parameter.values}
    if kinds > {str} or kinds > {bool}:
        raise StudyError(
            f"{name}: a column of a table holds either words, or numbers, or true and false; use values of one kind"
        )
    return _TYPES[max(kinds, key=list(_TYPES).index)]


def _files(reader: StudyReader, case: CaseView, trials: list[KeptTrial]) -> Iterator[tuple[str, list[bytes]]]:
    rows = [_row(trial, reader.series.get((case.name, trial.number), [])) for trial in trials]
    facts = Header(
        **dict(Circumstances.model_validate(case.kept.recording)),
        study=reader.study,
        case=case.name,
        files=dict(case.kept.files),
        objective=case.objective,
        unit=next((metric.unit for metric in METRICS if metric.name == case.objective), ""),
        source=case.kept.source or "",
        trainer=dict(case.kept.trainer),
        date=max(trial.probe.started_at or "" for trial in trials),
        rows=len(rows),
    )
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=columns(facts.space)), sink)
    yield f"{case.name}{TABLE_SUFFIX}", [sink.getvalue().to_pybytes()]
    yield f"{case.name}{HEADER_SUFFIX}", [facts.model_dump_json(indent=2, exclude_none=True).encode(), b"\n"]


_OF_PROBE = (
    *("started_at", "ineligible", "ready_s", "total_s"),
    *("iterations", "samples", "warm", "session_key", "launched"),
)
_OF_FAILURE = ("kind", "rule", "detail", "rank")


def _row(trial: KeptTrial, series: list[float | None]) -> dict[str, Any]:
    probe, failure = trial.probe, trial.probe.failure
    return {
        **trial.config,
        **trial.metrics,
        **{name: getattr(probe, name) for name in _OF_PROBE},
        **{f"failure_{name}": getattr(failure, name, None) for name in _OF_FAILURE},
        "overshoot_mib": failure and failure.overshoot_mib,
        "trial": trial.number,
        "status": trial.status,
        "invalidity": _invalidity(trial),
        "series": series,
        "devices": json.dumps([asdict(device) for device in trial.devices]),
    }


def _invalidity(trial: KeptTrial) -> str:
    """Return whether the config counts, in T4's words: `correct`, or what was wrong."""
    word = _INVALIDITY.get(trial.status or "", "runtime")
    return "constraints" if word == "runtime" and not trial.probe.launched else word
