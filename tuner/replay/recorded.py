"""Reads a recorded table and checks it."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from tuner.errors import StudyError
from tuner.export.recorded_table import HEADER_SUFFIX, METRIC_COLUMNS, Header, columns
from tuner.kept.stored import storable
from tuner.probe import MOST, OBJECTIVES, DeviceSummary, Failure, FailureKind, ProbeResult
from tuner.search.needs import Frontier, out_of_memory
from tuner.study import Config, ParameterSpec, Space, StudySpec, Value, config_digest, launched

_AMOUNTS = (
    *("total_s", "start_up_s", "window_s", "trained_s", "ready_s"),
    *("iterations", "samples", "samples_per_s", "samples_per_s_se", "iterations_per_s", "iterations_per_s_se"),
)
"""The columns that hold no negative number; the result has fields of the same names."""
_NEVER_UNKNOWN = ("started_at", "total_s", "iterations", "warm", "devices")
"""The columns in which every probe has a value."""


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
        self._frontier = Frontier(too_large, ladder=self.space.ladder)

    @classmethod
    def load(cls, path: Path) -> "Table":
        """Read a Parquet file and the JSON header beside it.

        Raises StudyError that names the file and says what is wrong with it.
        """
        header = _header(path.with_suffix(HEADER_SUFFIX))
        wanted = columns(header.space)
        try:
            read = pq.read_table(path)
            for newer in set(METRIC_COLUMNS) - {header.objective, *read.column_names}:  # than the table
                read = read.append_column(newer, pa.nulls(len(read)))
            if other := sorted(set(wanted.names) ^ set(read.column_names)):
                raise ValueError(f"it and its header differ in the column(s) {', '.join(other)}")
            rows = read.select(wanted.names).cast(wanted).to_pylist()
            table = cls(header, [_recorded(row, header.space) for row in rows])
        except FileNotFoundError as error:
            raise StudyError(f"there is no table {path}; give the .parquet file that `tuner record` wrote") from error
        except (
            OSError,
            ValueError,
            TypeError,
            KeyError,
            NotImplementedError,
            RecursionError,
        ) as error:  # pyarrow's, too
            raise StudyError(f"table {path} cannot be read: {error}; write it anew with `tuner record`") from error
        if strange := [one for one in table.configs if one not in table.space]:
            raise StudyError(
                f"table {path}: {strange[0]} is no config of the space in its header; copy both files anew"
            )
        if len(rows) != header.rows or not rows:
            raise StudyError(f"table {path} holds {len(rows)} row(s), its header says {header.rows}; copy both anew")
        return table

    @property
    def configs(self) -> list[Config]:
        """The configs that were probed."""
        return [row.result.config for row in self._by_config.values()]

    def find(self, config: Mapping[str, Value]) -> Recorded | None:
        """Return the recorded result of a config; None where the table has no result for it.

        A config that needs at least as much memory as a config that ran out of memory gets that config's result. The
        pruner's patience is ignored, because no probe depends on it.
        """
        known = launched(config)
        if row := self._by_config.get(config_digest(known)):
            return row
        beyond = self._frontier.beyond(known)
        return self._by_config[config_digest(beyond.config)] if beyond else None

    def holds(self, config: Config) -> bool:
        """Return whether the table has a result for a config."""
        return self.find(config) is not None

    def session_s(self, key: str | None) -> float:
        """Return the seconds that a session takes to start.

        This is the median over the recorded starts of this session, or over all recorded starts where it has none.
        """
        starts = [(row.session_key, row.result.ready_s) for row in self._rows if row.result.ready_s]
        own = [ready_s for start, ready_s in starts if start == key]
        return median(own or [ready_s for _, ready_s in starts] or [0.0])


def _header(path: Path) -> Header:
    try:
        header = Header.model_validate_json(path.read_bytes())
    except OSError as error:
        raise StudyError(f"table header {path} cannot be read: {error.strerror}; a table is both files") from error
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, part['loc'])) or 'header'}: {part['msg']}" for part in error.errors()]
        raise StudyError(f"table header {path}: {'; '.join(lines)}") from error
    if header.objective not in OBJECTIVES:
        raise StudyError(
            f"table header {path}: objective {header.objective!r} is unknown; known: {', '.join(OBJECTIVES)}"
        )
    return header


def _recorded(row: Mapping[str, Any], space: Mapping[str, ParameterSpec]) -> Recorded:
    """Read a row; numbers that are not finite count as unknown. Raises TypeError or ValueError for a damaged row."""
    row = storable(row)
    if lost := [name for name in _NEVER_UNKNOWN if row[name] is None]:
        raise ValueError(f"trial {row['trial']} has no {', '.join(lost)}")
    if odd := [name for name in _AMOUNTS if not 0 <= (row[name] or 0) <= MOST]:
        raise ValueError(f"trial {row['trial']}: {odd[0]} cannot be {row[odd[0]]}")
    if row["window_s"] and not row["iterations"]:
        raise ValueError(f"trial {row['trial']} has a window, and no iterations")
    failure = None
    if kind := row["failure_kind"]:
        named = {name: row[f"failure_{name}"] for name in ("rule", "detail", "rank")}
        failure = Failure(kind=FailureKind(kind), overshoot_mib=row["overshoot_mib"], **named)
    result = ProbeResult(
        **{name: row[name] for name in (*_AMOUNTS, "started_at", "warm")}
        | {"trained_s": row["trained_s"] or row["window_s"]},
        config={name: _own(row[name], spec) for name, spec in space.items() if row[name] is not None},
        plan_digest="",
        busy_spread_pct=row["busy_spread"],
        alloc_retries=None if row["alloc_retries"] is None else int(row["alloc_retries"]),
        devices=tuple(DeviceSummary(**_tuples(device)) for device in storable(json.loads(row["devices"]))),
        failure=failure,
    )
    return Recorded(result=result, series=tuple(row["series"] or ()), session_key=row["session_key"])


def _tuples(value: Any) -> Any:
    """Return a value of JSON with tuples for its lists, as the dataclasses have them."""
    if isinstance(value, dict):
        return {name: _tuples(part) for name, part in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _own(value: Value, spec: ParameterSpec) -> Value:
    """Return the parameter's own value for a column's value, such as 1 for 1.0."""
    return next((own for own in spec.values if own == value), value)
