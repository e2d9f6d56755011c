"""Follows a file with a trainer's progress: CSV, JSON lines, or TensorBoard's events."""

import csv
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from tuner.errors import TrainerError, installs
from tuner.probe.counting import EpochCounter, number
from tuner.probe.evidence import quoted
from tuner.probe.output import BOM, Tail, plain, record
from tuner.probe.probe_plan import STEP, ProgressFile
from tuner.probe.protocols import Clock


class FileRow(NamedTuple):
    """One row of a file."""

    number: int
    """The place of the row in its file, from 1."""
    values: Mapping[str, object]
    """Column → what the file holds there."""
    unix_s: float | None = None
    """When the trainer wrote the row, in seconds since 1970; None where the file does not say."""


def open_rows(file: ProgressFile, path: Path, most_bytes: int) -> "TextRows | EventRows":
    """Return a reader of the file at `path`. `most_bytes` are read at once."""
    if file.format == "tensorboard":
        return EventRows(path, frozenset(file.columns.values()) - {STEP})
    return TextRows(Tail(path, most_bytes), is_csv=file.format == "csv")


class TextRows:
    """Reads a row from each line: JSON, or CSV whose first line names the columns.

    A line that is no JSON object is a row without values. CSV that is written anew with more columns is read anew.
    """

    def __init__(self, tail: Tail, *, is_csv: bool) -> None:
        self._tail = tail
        self._is_csv = is_csv
        self._starts = self._number = 0
        self._columns: list[str] = []

    @property
    def is_behind(self) -> bool:
        """Whether the last call has left bytes unread."""
        return self._tail.left > 0

    def read(self) -> Iterator[FileRow]:
        """Yield the rows since the last call, at most a bounded number. Raises OSError."""
        lines = self._tail.read()
        if self._tail.starts != self._starts:
            self._starts, self._number, self._columns = self._tail.starts, 0, []
        for line in lines:
            if self._is_csv and not self._columns:
                self._columns = _cells(line)
                continue
            self._number += 1
            values = dict(zip(self._columns, _cells(line), strict=False)) if self._is_csv else record(line)
            yield FileRow(self._number, values)


class EventRows:
    """Reads TensorBoard's events with TensorBoard's own reader. The scalars of one step are a row.

    A row is complete as soon as it has all wanted tags, or where the next step begins.
    """

    is_behind = False

    def __init__(self, path: Path, tags: frozenset[str]) -> None:
        """Raises OSError where the file cannot be opened. TensorBoard must be installed."""
        self._tags = tags
        loader: Any = import_module("tensorboard.backend.event_processing.event_file_loader")
        self._loader = loader.EventFileLoader(str(path))
        self._as_array: Any = import_module("tensorboard.util.tensor_util").make_ndarray
        self._broken: type[Exception] = import_module("google.protobuf.message").DecodeError
        self._values: dict[str, object] = {}
        self._number = 0
        self._is_complete = True

    def read(self) -> Iterator[FileRow]:
        """Yield the rows since the last call, from at most 10,000 events. Raises OSError or ValueError."""
        try:
            for event in islice(self._loader.Load(), 10_000):
                yield from self._rows(event)
        except self._broken as error:
            raise ValueError(f"it holds an event that cannot be read: {error}") from error

    def _rows(self, event: Any) -> Iterator[FileRow]:
        if not event.summary.value:
            return
        if event.step != self._values.get(STEP):
            if not self._is_complete:
                yield self._row(event)
            self._values, self._is_complete = {STEP: event.step}, False
        for scalar in event.summary.value:
            if scalar.tag in self._tags:
                with suppress(TypeError, ValueError):
                    self._values[scalar.tag] = self._as_array(scalar.tensor).item()
            self._values.setdefault(scalar.tag, None)
        if not self._is_complete and self._tags <= self._values.keys():
            yield self._row(event)

    def _row(self, event: Any) -> FileRow:
        self._is_complete = True
        self._number += 1
        return FileRow(self._number, dict(self._values), event.wall_time)


def check_reader(file: ProgressFile) -> None:
    """Raise TrainerError where the reader of the file's format is not installed."""
    if file.format == "tensorboard" and find_spec("tensorboard") is None:
        raise TrainerError(
            f"progress_file: TensorBoard is not installed beside tuner; {installs('tensorboard')} installs it"
        )


def _cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line.removeprefix(BOM)]), [])
    except csv.Error:
        return []


class ProgressFileReader:
    """Follows one progress file: from before it exists, to its last row.

    Rows that appear together count as one iteration, because it is not known when each of them was written. The rows
    of TensorBoard hold their times, so that each of them counts. A count that falls to its first value goes on, because
    a new epoch has begun. While more rows wait than are read at once, nothing is known of speeds.
    """

    def __init__(
        self, file: ProgressFile, clock: Clock, most_bytes: int, unix_s: Callable[[], float] = time.time
    ) -> None:
        """`unix_s` returns the seconds since 1970. Raises TrainerError where a reader is not installed."""
        check_reader(file)
        self._file = file
        self._clock = clock
        self._most_bytes = most_bytes
        self._unix_s = unix_s
        self._rows: TextRows | EventRows | None = None
        self._name = file.pattern
        self._counters: dict[str, EpochCounter] = {}
        self._complaints: set[str] = set()
        self._messages: list[dict[str, Any]] = []

    def read(self) -> list[str]:
        """Return the new messages as JSON texts: the iterations, and once each why there are none."""
        reports: list[dict[str, Any]] = []
        try:
            reports = [report for row in self._new_rows() if (report := self._report(row))]
        except (OSError, ValueError) as error:
            self._complain("broken", str(error))
        messages, self._messages = [*self._messages, *_together(reports)], []
        return [json.dumps(message) for message in messages]

    def _new_rows(self) -> Iterator[FileRow]:
        if self._rows is None and (path := min(self._file.folder.glob(self._file.pattern), default=None)):
            self._name = path.name
            self._rows = open_rows(self._file, path, self._most_bytes)
        if self._rows is None:
            self._complain("missing", "it has not appeared")
            return
        yield from self._rows.read()

    def _report(self, row: FileRow) -> dict[str, Any] | None:
        """Return the message for a row; None for a row without a number in each of the wanted columns."""
        if row.number == 1:
            self._counters = {name: EpochCounter(restart_drop=1) for name in ("iteration", "samples")}
        report: dict[str, Any] = {"type": "iteration", "iteration": row.number}
        for field, column in self._file.columns.items():
            value = row.values.get(column)
            if (read := number(value)) is None:
                self._complain_of(row, column, value)
                return None
            report[field] = self._counters[field](read) if field in self._counters else read
        fields = [field for field in ("samples", "samples_per_s", "iteration") if field in self._file.columns]
        counter = self._counters.get(fields[0]) if fields else None
        doubt = counter and counter.doubt
        if self._rows and self._rows.is_behind:
            doubt = "rows come faster than they are read"
        if doubt:
            report["doubt"] = f"{doubt} in progress_file {self._name}"
        return report if row.unix_s is None else {**report, "t_s": self._clock.now() - self._unix_s() + row.unix_s}

    def _complain_of(self, row: FileRow, column: str, value: object) -> None:
        """Report a value that cannot be used. A row may leave a column empty."""
        if column not in row.values:
            self._complain("column", f"it has no column {column!r}; found: {', '.join(row.values) or 'no columns'}")
        elif value not in (None, ""):
            self._complain("number", f"row {row.number}: {value!r} in column {column!r} is no number")

    def _complain(self, kind: str, detail: str) -> None:
        """Add a complaint of this kind, if it is the first one."""
        if kind not in self._complaints:
            self._complaints.add(kind)
            text = plain(quoted(f"progress_file {self._name}: {detail}"))
            self._messages.append({"type": "unread", "detail": text, "missing": kind == "missing"})


def _together(reports: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Return the reports that have times of their own; of the others only the last, with their mean speed."""
    if not reports or "t_s" in reports[-1]:
        return reports
    speeds = [report["samples_per_s"] for report in reports if "samples_per_s" in report]
    return [{**reports[-1], **({"samples_per_s": fmean(speeds)} if speeds else {})}]
