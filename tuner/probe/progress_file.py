"""Follows a file with a trainer's progress: CSV, JSON lines, or TensorBoard's events."""

import csv
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

from tuner.errors import TrainerError, installs
from tuner.probe.counting import EpochCounter, number
from tuner.probe.evidence import quoted
from tuner.probe.output import Tail, plain
from tuner.probe.probe_plan import STEP, ProgressFile
from tuner.probe.progress_reader import BOM, record
from tuner.probe.protocols import Clock

MOST_EVENTS = 10_000
"""The most events of TensorBoard that are read at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FileRow:
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
        self.left = self.unended = 0
        """The bytes that the last call has left unread, and those at the end of the file that are no whole row yet."""

    def read(self) -> Iterator[FileRow]:
        """Return the rows since the last call, at most a bounded number. Raises OSError."""
        lines = self._tail.read()
        self.left, self.unended = self._tail.left, self._tail.unended
        if self._tail.starts != self._starts:
            self._starts, self._number, self._columns = self._tail.starts, 0, []
        for line in lines:
            if self._is_csv and not self._columns:
                self._columns = _cells(line)
                continue
            self._number += 1
            values = dict(zip(self._columns, _cells(line), strict=False)) if self._is_csv else record(line)
            yield FileRow(number=self._number, values=values)


class EventRows:
    """Reads TensorBoard's events with TensorBoard's own reader. The scalars of one step are a row.

    A row is whole as soon as it has all wanted tags, or where the next step begins.
    """

    left = unended = 0

    def __init__(self, path: Path, tags: frozenset[str]) -> None:
        """Raises OSError where the file cannot be opened. TensorBoard must be installed."""
        self._tags = tags
        self._loader: Any = import_module("tensorboard.backend.event_processing.event_file_loader").EventFileLoader(
            str(path)
        )
        self._as_array: Any = import_module("tensorboard.util.tensor_util").make_ndarray
        self._broken: type[Exception] = import_module("google.protobuf.message").DecodeError
        self._values: dict[str, object] = {}
        self._number = 0
        self._is_told = True

    def read(self) -> Iterator[FileRow]:
        """Return the rows since the last call, at most `MOST_EVENTS`. Raises OSError or ValueError."""
        try:
            for event in islice(self._loader.Load(), MOST_EVENTS):
                yield from self._rows(event)
        except self._broken as error:
            raise ValueError(f"it holds an event that cannot be read: {error}") from error

    def _rows(self, event: Any) -> Iterator[FileRow]:
        if not event.summary.value:
            return
        if event.step != self._values.get(STEP):
            if not self._is_told:
                yield self._row(event)
            self._values, self._is_told = {STEP: event.step}, False
        for value in event.summary.value:
            self._values[value.tag] = self._scalar(value) if value.tag in self._tags else None
        if not self._is_told and self._tags <= self._values.keys():
            yield self._row(event)

    def _row(self, event: Any) -> FileRow:
        self._is_told = True
        self._number += 1
        return FileRow(number=self._number, values=dict(self._values), unix_s=event.wall_time)

    def _scalar(self, value: Any) -> object:
        with suppress(TypeError, ValueError):
            return self._as_array(value.tensor).item()
        return None


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


UNREAD, BACKLOG = "unread", "backlog"
"""The types of the messages that say why a progress file gives no iteration, and that it grows too fast."""
UNENDED = 3
"""A first line that has grown so many times and has no end will probably get none."""


class ProgressFileReader:
    """Follows one progress file: from before it exists, to its last row.

    Rows that appear together count as one iteration, because it is not known when each of them was written. The rows
    of TensorBoard hold their times, so that each of them counts. While more rows wait than are read at once, none
    counts. A count that falls to its first value goes on, because a new epoch has begun.
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
        self._counts: dict[str, EpochCounter] = {}
        self._is_behind = self._has_rows = False
        self._unended: list[int] = []
        self._said: set[str] = set()
        self._messages: list[dict[str, Any]] = []

    def read(self) -> list[str]:
        """Return the new messages as JSON texts: the iterations, and once each why there are none."""
        reports: list[dict[str, Any]] = []
        try:
            for row in self._new_rows():
                if report := self._report(row):
                    reports.append(report)
        except (OSError, ValueError) as error:
            self._say("broken", str(error))
        self._note_left()
        messages = [*self._messages, *(() if self._is_behind else _together(reports))]
        self._messages = []
        return [json.dumps(message) for message in messages]

    def _new_rows(self) -> Iterator[FileRow]:
        if self._rows is None and (found := min(self._file.folder.glob(self._file.pattern), default=None)):
            self._name = found.name
            self._rows = open_rows(self._file, found, self._most_bytes)
        if self._rows is None:
            self._say("missing", "it has not appeared", missing=True)
            return
        yield from self._rows.read()

    def _note_left(self) -> None:
        """Report the bytes that wait, where they are too many, and a first line without an end."""
        if self._rows is None:
            return
        was_behind, self._is_behind = self._is_behind, self._rows.left > 0
        if self._is_behind:
            detail = f"progress_file {self._name} grows faster than it is read: report less often"
            self._messages.append({"type": BACKLOG, "detail": detail})
        elif was_behind:
            self._messages.append({"type": BACKLOG})
        if self._rows.unended > max(self._unended, default=0) and len(self._unended) < UNENDED:
            self._unended.append(self._rows.unended)
            if len(self._unended) == UNENDED and not self._has_rows:
                self._say("endless", f"its first line has {self._unended[-1]} bytes and no end: end each row's line")

    def _report(self, row: FileRow) -> dict[str, Any] | None:
        """Return the message for a row; None for a row without a number in each of the wanted columns."""
        self._has_rows = True
        if row.number == 1:
            self._counts = {name: EpochCounter(restart_drop=1) for name in ("iteration", "samples")}
        report: dict[str, Any] = {"type": "iteration", "iteration": row.number}
        for field, column in self._file.columns.items():
            value = row.values.get(column)
            report[field] = number(value)
            if report[field] is None:
                self._complain(row, column, value)
                return None
        counts = {field: self._counts[field] for field in self._file.columns if field in self._counts}
        report |= {field: count(report[field]) for field, count in counts.items()}
        what_counts = counts.get("samples") or (
            None if "samples_per_s" in self._file.columns else counts.get("iteration")
        )
        if what_counts and what_counts.doubt:
            report["doubt"] = f"{what_counts.doubt} in progress_file {self._name}"
        return report if row.unix_s is None else {**report, "t_s": self._clock.now() - self._unix_s() + row.unix_s}

    def _complain(self, row: FileRow, column: str, value: object) -> None:
        """Report a value that cannot be used. A row may leave a column empty."""
        if column not in row.values:
            self._say("column", f"it has no column {column!r}; found: {', '.join(row.values) or 'no columns'}")
        elif value not in (None, ""):
            self._say("number", f"row {row.number}: {value!r} in column {column!r} is no number")

    def _say(self, what: str, detail: str, *, missing: bool = False) -> None:
        """Add a complaint of this kind, if it is the first one."""
        if what not in self._said:
            self._said.add(what)
            detail = plain(quoted(f"progress_file {self._name}: {detail}"))
            self._messages.append({"type": UNREAD, "detail": detail, "missing": missing})


def _together(reports: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Return the reports that have times of their own; of the others only the last, with their mean speed."""
    if not reports or "t_s" in reports[-1]:
        return reports
    speeds = [report["samples_per_s"] for report in reports if "samples_per_s" in report]
    return [{**reports[-1], **({"samples_per_s": fmean(speeds)} if speeds else {})}]
