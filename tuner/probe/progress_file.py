"""Turns the rows of a progress file into the messages that `tuner.progress` would write."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import Any

from tuner.probe.counts import Unwrapped, number
from tuner.probe.last_words import quoted
from tuner.probe.lines import plain
from tuner.probe.plan import ProgressFile
from tuner.probe.protocols import Clock
from tuner.probe.rows import Row, Rows, check_reader, open_rows

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
        self._rows: Rows | None = None
        self._name = file.pattern
        self._counts: dict[str, Unwrapped] = {}
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

    def _new_rows(self) -> Iterator[Row]:
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

    def _report(self, row: Row) -> dict[str, Any] | None:
        """Return the message for a row; None for a row without a number in each of the wanted columns."""
        self._has_rows = True
        if row.number == 1:
            self._counts = {name: Unwrapped(restart_drop=1) for name in ("iteration", "samples")}
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

    def _complain(self, row: Row, column: str, value: object) -> None:
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
