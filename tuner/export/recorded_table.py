"""Recorded cases as tables, written and read: Parquet files with a row per probe, and headers; after Kernel Tuner."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, ValidationError, field_serializer

from tuner import __version__
from tuner.errors import StudyError
from tuner.export.case_view import CaseView
from tuner.export.reader import StudyReader, connect
from tuner.export.write import write_files
from tuner.probe import METRICS, MOST, OBJECTIVES, Device, DeviceSummary, Failure, FailureKind, ProbeResult, number_of
from tuner.records.schema import storable
from tuner.records.trial import FINISHED, INTERRUPTED, NO_READING, OK, TrialRecord
from tuner.search.frontier import Frontier, out_of_memory
from tuner.study import Config, ParameterSpec, ProbeSpec, Space, Strict, StudySpec, Value, config_digest, launched

if TYPE_CHECKING:
    import pyarrow as pa


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


METRIC_COLUMNS = [
    name for metric in METRICS for name in ((metric.name, f"{metric.name}_se") if metric.error_of else (metric.name,))
]
"""The columns of each metric: its number, and its standard error if the metric has one."""
_COLUMNS = {
    "trial": "int64",
    **dict.fromkeys(("started_at", "status", "invalidity", "failure_kind", "failure_rule", "failure_detail"), "string"),
    "failure_rank": "int64",
    "overshoot_mib": "float64",
    "ineligible": "string",
    **dict.fromkeys(METRIC_COLUMNS, "float64"),
    **dict.fromkeys(("ready_s", "total_s"), "float64"),
    **dict.fromkeys(("iterations", "samples"), "int64"),
    "warm": "bool",
    "session_key": "string",
    "launched": "bool",
    "series": "list",
    "devices": "string",
}


def export_tables(url: str, study: str, folder: Path) -> list[Path]:
    """Write CASE.parquet and CASE.json for each recorded case that has rows, and return their paths.

    Each ended trial is a row, except interrupted trials, whose configs are probed again. Raises StoreError if the study
    cannot be read, EmptyStoreError if no case has been begun, and OutputError if a file cannot be written.
    """
    reader = StudyReader(connect(url, filled_by="tuner record"), study)
    files: dict[str, bytes] = {}
    for case in reader.cases:
        ended = [trial for trial in case.trials if trial.state in FINISHED and trial.status != INTERRUPTED]
        if case.record.recording and ended:
            files |= _table_and_header(reader, case, ended)
    return write_files(folder, files)


def columns(space: Mapping[str, ParameterSpec]) -> "pa.Schema":
    """Return the columns of a table over `space`: the parameters, then the columns that all tables have.

    Raises StudyError if a parameter has the name of another column, or has values of several kinds.
    """
    import pyarrow as pa  # noqa: PLC0415 - a search without a table does not need it

    if taken := sorted(space.keys() & _COLUMNS.keys()):
        raise StudyError(f"{', '.join(taken)}: each table already has a column of that name; rename the parameter")
    types = {name: _column_type(name, parameter) for name, parameter in space.items()} | _COLUMNS
    return pa.schema([(name, pa.list_(pa.float64()) if kind == "list" else kind) for name, kind in types.items()])


def _column_type(name: str, parameter: ParameterSpec) -> str:
    """Return the type of a parameter's column as pyarrow names it; integers and floats together are `float64`.

    Raises StudyError where its values are of several kinds.
    """
    kinds = {type(value) for value in parameter.values}
    if kinds == {int, float}:
        return "float64"
    if len(kinds) > 1:
        raise StudyError(
            f"{name}: a column of a table holds either words, or numbers, or true and false; use values of one kind"
        )
    return {bool: "bool", int: "int64", float: "float64", str: "string"}[kinds.pop()]


def _table_and_header(reader: StudyReader, case: CaseView, trials: list[TrialRecord]) -> dict[str, bytes]:
    """Return the files of a recorded case, the table of its trials and its header: name → content."""
    import pyarrow as pa  # noqa: PLC0415 - as in `columns`
    import pyarrow.parquet as pq  # noqa: PLC0415

    rows = [_row_of_trial(trial, reader.series.get((case.name, trial.number), [])) for trial in trials]
    header = Header(
        **dict(Circumstances.model_validate(case.record.recording)),
        study=reader.study,
        case=case.name,
        files=dict(case.record.files),
        objective=case.objective,
        unit=next((metric.unit for metric in METRICS if metric.name == case.objective), ""),
        source=case.record.source or "",
        trainer=dict(case.record.trainer),
        date=max(trial.probe.started_at or "" for trial in trials),
        rows=len(rows),
    )
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=columns(header.space)), sink)
    text = f"{header.model_dump_json(indent=2, exclude_none=True)}\n"
    return {f"{case.name}.parquet": sink.getvalue().to_pybytes(), f"{case.name}.json": text.encode()}


def _row_of_trial(trial: TrialRecord, series: list[float | None]) -> dict[str, Any]:
    """Return the row of a trial; `series` is the objective after each iteration."""
    probe, failure = trial.probe, trial.probe.failure
    own_names = ("started_at", "ineligible", "ready_s", "total_s", "iterations", "samples")  # fields and columns
    return {
        **trial.config,
        **probe.metrics,
        **{name: getattr(probe, name) for name in (*own_names, "warm", "session_key", "launched")},
        **{f"failure_{name}": getattr(failure, name, None) for name in ("kind", "rule", "detail", "rank")},
        "overshoot_mib": failure and failure.overshoot_mib,
        "trial": trial.number,
        "status": trial.status,
        "invalidity": _invalidity(trial),
        "series": series,
        "devices": json.dumps([asdict(device) for device in probe.devices]),
    }


def _invalidity(trial: TrialRecord) -> str:
    """Return how a trial ended, in a word of T4, a format for results of tuners: `correct`, or what was wrong."""
    words = {OK: "correct", NO_READING: "correctness", **{kind: kind.invalidity for kind in FailureKind}}
    word = words.get(trial.status or "", "runtime")
    was_refused = word == "runtime" and not trial.probe.launched  # by the trainer, before it ran
    return "constraints" if was_refused else word


_AMOUNTS = (
    *("total_s", "start_up_s", "window_s", "trained_s", "ready_s"),
    *("iterations", "samples", "samples_per_s", "samples_per_s_se", "iterations_per_s", "iterations_per_s_se"),
)
"""The columns that hold no negative number; the result has fields of the same names."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded:
    """One row: the result of a probe, and the values of its objective during the probe."""

    result: ProbeResult
    """The result without the plan's digest and the host, because a table has no columns for them."""
    series: tuple[float | None, ...] = ()
    """The table's objective after each whole iteration of the window; None where it was unknown."""
    session_key: str | None = None
    """The key of the session that ran the probe; None for a plain command."""


class Table:
    """The recorded result of each config; the last result where a config was probed more than once."""

    def __init__(self, header: Header, rows: Iterable[Recorded]) -> None:
        """Make a table of recorded results. Raises StudyError where the space of the header cannot be used."""
        self.header = header
        """Where and how the table was recorded."""
        self.space: Space = StudySpec.model_validate(
            {"name": header.study, "trainer": {"name": header.trainer["name"]}, "space": header.space}
        ).build_space()
        """The recorded parameters; the table holds all their combinations or a sample of them."""
        self._rows = list(rows)
        self._by_config = {config_digest(row.result.config): row for row in self._rows}
        too_large = [
            out_of_memory(row.result.config, row.result.failure)
            for row in self._by_config.values()
            if row.result.failure and row.result.failure.kind is FailureKind.GPU_OOM
        ]
        self._frontier = Frontier(too_large, ladder=self.space.ladder)  # knows which configs need at least as much

    @classmethod
    def load(cls, path: Path) -> "Table":
        """Return the table of a Parquet file and of the JSON header beside it.

        Raises StudyError that names the file and says what is wrong with it.
        """
        import pyarrow as pa  # noqa: PLC0415 - as in `columns`
        import pyarrow.parquet as pq  # noqa: PLC0415

        header = _read_header(path.with_suffix(".json"))
        wanted = columns(header.space)
        try:
            with pq.ParquetFile(path) as file:
                rows = file.metadata.num_rows
                if rows != header.rows or not rows:
                    raise StudyError(
                        f"table {path} holds {number_of(rows, 'row')}, its header says {header.rows}; copy both anew"
                    )
                content = file.read()
            for name in set(METRIC_COLUMNS) - {header.objective, *content.column_names}:  # newer than the table
                content = content.append_column(name, pa.nulls(len(content)))
            if unlike := sorted(set(wanted.names) ^ set(content.column_names)):  # in one of the two, not in both
                raise ValueError(f"it and its header differ in the column(s) {', '.join(unlike)}")
            values = content.select(wanted.names).cast(wanted).to_pylist()
            table = cls(header, [_recorded_of_row(row, header.space) for row in values])
        except FileNotFoundError as error:
            raise StudyError(f"there is no table {path}; give the .parquet file that `tuner record` wrote") from error
        # pyarrow raises any of these for a damaged file
        except (OSError, ValueError, TypeError, KeyError, NotImplementedError, RecursionError, MemoryError) as error:
            raise StudyError(f"table {path} cannot be read: {error}; write it anew with `tuner record`") from error
        if strange := [config for config in table.configs if config not in table.space]:
            raise StudyError(
                f"table {path}: {strange[0]} is no config of the space in its header; copy both files anew"
            )
        return table

    @property
    def configs(self) -> list[Config]:
        """The configs that were probed."""
        return [row.result.config for row in self._by_config.values()]

    def find(self, config: Mapping[str, Value]) -> Recorded | None:
        """Return the recorded result of a config; None where the table has no result for it.

        A config that was not recorded, but needs at least as much memory as a recorded one that ran out of memory, gets
        the result of that one. The pruner's patience is ignored, because no probe depends on it.
        """
        run_config = launched(config)
        if row := self._by_config.get(config_digest(run_config)):
            return row
        too_large = self._frontier.exceeded_failure(run_config)
        return self._by_config[config_digest(too_large.config)] if too_large else None

    def holds(self, config: Config) -> bool:
        """Return whether the table has a result for a config."""
        return self.find(config) is not None

    def session_s(self, key: str | None) -> float:
        """Return the seconds that a session, a trainer started once for many probes, takes to start in a replay.

        It is the median over the recorded starts of the session with this key. Where none is recorded, it is the median
        over all recorded starts; 0 where there are none.
        """
        rows = [row for row in self._rows if row.result.ready_s]
        of_session = [row.result.ready_s or 0.0 for row in rows if row.session_key == key]
        of_all = [row.result.ready_s or 0.0 for row in rows]
        return median(of_session or of_all or [0.0])


def _read_header(path: Path) -> Header:
    """Return the header of a table. Raises StudyError where it cannot be used."""
    try:
        header = Header.model_validate_json(path.read_bytes())
    except OSError as error:
        raise StudyError(f"table header {path} cannot be read: {error.strerror}; a table is both files") from error
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, part['loc'])) or 'header'}: {part['msg']}" for part in error.errors()]
        raise StudyError(f"table header {path}: {'; '.join(lines)}") from error  # such as `limits.iterations: …`
    if header.objective not in OBJECTIVES:
        raise StudyError(
            f"table header {path}: objective {header.objective!r} is unknown; known: {', '.join(OBJECTIVES)}"
        )
    return header


def _recorded_of_row(row: Mapping[str, Any], space: Mapping[str, ParameterSpec]) -> Recorded:
    """Return the recorded probe of a row of a table's file; numbers that are not finite are unknown.

    Raises TypeError or ValueError for a damaged row.
    """
    row = storable(row)  # makes numbers None that are not finite
    if missing := [name for name in ("started_at", "total_s", "iterations", "warm", "devices") if row[name] is None]:
        raise ValueError(f"trial {row['trial']} has no {', '.join(missing)}")
    if impossible := [name for name in _AMOUNTS if not 0 <= (row[name] or 0) <= MOST]:
        raise ValueError(f"trial {row['trial']}: {impossible[0]} cannot be {row[impossible[0]]}")
    if row["window_s"] and not row["iterations"]:
        raise ValueError(f"trial {row['trial']} has a window, and no iterations")
    failure = None
    if kind := row["failure_kind"]:
        fields = {name: row[f"failure_{name}"] for name in ("rule", "detail", "rank")}
        failure = Failure(kind=FailureKind(kind), overshoot_mib=row["overshoot_mib"], **fields)
    result = ProbeResult(
        **{name: row[name] for name in (*_AMOUNTS, "started_at", "warm")}
        | {"trained_s": row["trained_s"] or row["window_s"]},  # the former is missing in older tables
        config={  # with the values that the space has, such as 1 for 1.0
            name: next((value for value in spec.values if value == row[name]), row[name])
            for name, spec in space.items()
            if row[name] is not None
        },
        plan_digest="",
        busy_spread_pct=row["busy_spread"],
        alloc_retries=None if row["alloc_retries"] is None else int(row["alloc_retries"]),
        devices=tuple(map(_device, storable(json.loads(row["devices"])))),
        failure=failure,
    )
    return Recorded(result=result, series=tuple(row["series"] or ()), session_key=row["session_key"])


def _device(facts: Mapping[str, Any]) -> DeviceSummary:
    """Return the summary of a device from its JSON; facts in older tables that are no longer kept are passed over.

    Raises TypeError where the JSON is no summary.
    """
    kept = {field.name for field in fields(DeviceSummary)}.intersection(facts)
    return DeviceSummary(**{name: _with_tuples(facts[name]) for name in kept})


def _with_tuples(value: Any) -> Any:
    """Return a value of JSON with tuples for its lists, as the dataclasses have them."""
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value
