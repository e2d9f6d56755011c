"""Turns the rows of a progress file into the messages that `tuner.progress` would write."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import Any

from tuner.probe.counts import number
from tuner.probe.last_words import quoted
from tuner.probe.lines import plain
from tuner.probe.plan import ProgressFile
from tuner.probe.protocols import Clock
from tuner.probe.rows import Row, Rows, check_reader, open_rows

UNREAD = "unread"
"""The type of the message that says why a progress file gives no iteration."""


class ProgressFileReader:
    """Follows one progress file: from before it exists, to its last row.

    Rows that appear together count as one iteration, because it is not known when each of them was written. The rows
    of TensorBoard hold their times, so that each of them counts.
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
        messages = [*self._messages, *_together(reports)]
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

    def _report(self, row: Row) -> dict[str, Any] | None:
        """Return the message for a row; None for a row without a number in each of the wanted columns."""
        report: dict[str, Any] = {"type": "iteration", "iteration": row.number}
        for field, column in self._file.columns.items():
            value = row.values.get(column)
            report[field] = number(value)
            if report[field] is None:
                self._complain(row, column, value)
                return None
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
