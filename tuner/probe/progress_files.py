"""Follows the files in which a training tells its progress: rows of CSV or JSON, and the counts from inside.

Each reader turns what is new in its files into messages: JSON texts like those that a trainer sends by `report()`. The
counts from inside are what `tuner.count` notes within the trainer's processes, such as steps and samples.
"""

import csv
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from tuner.count import Merger, ProcessCounts, TrainingCounts
from tuner.probe.counting import EpochCounter, number
from tuner.probe.evidence import quoted
from tuner.probe.output import USUAL_BOUNDS, Tail, plain, record
from tuner.probe.probe_plan import ProgressFile


class ProgressFileReader:
    """Follows one progress file: from before it exists, to its last row.

    A row is a line: JSON, or CSV whose first line names the columns. A line that is no JSON object is a row without
    values. A file that is written anew, as CSV with more columns may be, is read anew.

    Of rows that appear together only the last one counts, because it is not known when each of them was written. A
    count that falls to its first value is continued, because a new epoch has begun. While more rows wait than are read
    at once, nothing is known of speeds.
    """

    def __init__(self, file: ProgressFile, most_bytes: int) -> None:
        """Begin before the file has appeared. At most `most_bytes` are read at once."""
        self._file = file
        self._most_bytes = most_bytes
        self._tail: Tail | None = None
        """The lines of the file; None before it has appeared."""
        self._starts = 0
        """How often the file had been begun when it was read last; see `Tail.starts`."""
        self._row_number = 0
        """The place in the file of the row that was read last, from 1."""
        self._columns: list[str] = []
        """The names of the columns; empty for JSON, and before the first line of CSV."""
        self._name = file.pattern
        """How messages call the file: by its pattern before it has appeared."""
        self._counters: dict[str, EpochCounter] = {}
        """`iteration` or `samples` → what continues it."""
        self._complaints: set[str] = set()
        """The kinds of complaint that were made: each is made once."""
        self._messages: list[dict[str, Any]] = []
        """The complaints that `read` returns next."""

    def read(self) -> list[str]:
        """Return the new messages as JSON texts: the newest iteration, and each reason why there are none once."""
        reports: list[dict[str, Any]] = []
        try:
            if self._tail is None and (path := min(self._file.folder.glob(self._file.pattern), default=None)):
                self._name, self._tail = path.name, Tail(path, self._most_bytes)
            if self._tail:
                reports = [report for row in self._rows(self._tail) if (report := self._report(row, self._tail))]
            else:
                self._complain("missing", "it has not appeared")
        except OSError as error:
            self._complain("broken", str(error))
        messages, self._messages = [*self._messages, *reports[-1:]], []
        return [json.dumps(message) for message in messages]

    def _rows(self, tail: Tail) -> Iterator[dict[str, Any]]:
        """Yield the rows since the last call, column → value; a line that is no CSV has none. Raises OSError."""
        lines = tail.read()
        if tail.starts != self._starts:  # the file is new, or written anew
            self._starts, self._row_number, self._columns = tail.starts, 0, []
            self._counters = {name: EpochCounter(restart_drop=1) for name in ("iteration", "samples")}
        is_csv = self._file.format == "csv"
        for line in lines:
            cells: list[str] = []
            if is_csv:
                with suppress(csv.Error):  # a cell is longer than the library reads
                    cells = next(csv.reader([line]), [])
            if is_csv and not self._columns:
                self._columns = cells
                continue
            self._row_number += 1
            yield dict(zip(self._columns, cells, strict=False)) if is_csv else record(line)

    def _report(self, row: dict[str, Any], tail: Tail) -> dict[str, Any] | None:
        """Return the message about the iteration of a row; None for a row without a number in each wanted column."""
        report: dict[str, Any] = {"type": "iteration", "iteration": self._row_number}
        for field, column in self._file.columns.items():
            value = row.get(column)
            if (parsed := number(value)) is None:
                if column not in row:
                    self._complain("column", f"it has no column {column!r}; found: {', '.join(row) or 'no columns'}")
                elif value not in (None, ""):  # a row may leave a column empty
                    self._complain("number", f"row {self._row_number}: {value!r} in column {column!r} is no number")
                return None
            report[field] = self._counters[field](parsed) if field in self._counters else parsed
        # the doubt about what speeds are computed from: samples, or else iterations
        counted = next((field for field in ("samples", "iteration") if field in self._file.columns), None)
        doubt = self._counters[counted].doubt if counted else None
        if tail.unread_bytes:
            doubt = "rows come faster than they are read"
        if doubt:
            report["doubt"] = f"{doubt} in progress_file {self._name}"
        return report

    def _complain(self, kind: str, detail: str) -> None:
        """Add a message that says why there is no iteration, unless one of this kind was added before."""
        if kind not in self._complaints:
            self._complaints.add(kind)
            text = plain(quoted(f"progress_file {self._name}: {detail}"))
            self._messages.append({"type": "unread", "detail": text, "missing": kind == "missing"})


TRAINING = "training"
"""The type of the message about the training: its counts, its beginning, a pause, or why nothing is counted."""
COUNTED = "counted"
"""The field of a message whose samples were counted inside the training."""
NOT_OURS = "a record of the counts has another form, so another program has written it"
"""Why nothing is counted if another program writes into the folder of the counts."""


class CountLine(NamedTuple):
    """A line that a process has written about its counts."""

    name: str
    """The file of the process."""
    text: str


class CountLines:
    """Reads the files into which the processes of one probe write their counts, from before the files exist."""

    MOST_FILES = 4096
    """Files beyond this number are left out: there is one for each rank, and for each helper beside it."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        """Begin before the first line. At most `most_bytes` of a file are read at once."""
        self._folder = folder
        self._most_bytes = most_bytes
        self._tails: dict[str, Tail] = {}

    def read(self) -> Iterator[CountLine]:
        """Yield the lines that the processes have added to their files since the last call, with the file of each.

        A file that cannot be read is left out. Nothing is yielded before the first process has made the folder.
        """
        try:
            names = sorted(entry.name for entry in self._folder.iterdir() if entry.name.endswith(".jsonl"))
        except OSError:
            return
        for name in names[: self.MOST_FILES]:
            tail = self._tails.setdefault(name, Tail(self._folder / name, self._most_bytes))
            with suppress(OSError):
                yield from (CountLine(name, text) for text in tail.read())


class MergedCounts:
    """Merges what the processes of one probe have counted into messages about the training as a whole."""

    def __init__(self, new_lines: Callable[[], Iterable[CountLine]]) -> None:
        """Begin without any counts. `new_lines`: returns the lines since its last call."""
        self._new_lines = new_lines
        self._merger = Merger()
        self._last_why: str | None = None
        """The last reason that was told why nothing is counted."""
        self._has_begun = False
        """Whether it was told that the training has begun."""

    @property
    def processes(self) -> list[ProcessCounts]:
        """What each process has told so far."""
        return list(self._merger.processes.values())

    def read(self) -> list[str]:
        """Return the new messages as JSON texts: iterations of all ranks, and facts about the training."""
        if self._last_why == NOT_OURS:
            return []
        try:
            records = [(name, message) for name, text in self._new_lines() if (message := record(text))]
            for name, message in records:
                self._merger.feed(name, message)
            is_paused = any(message.get("type") == "pause" for _, message in records)
            return self._new_messages(is_paused) if records else []
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):  # whatever a record holds
            self._merger, self._last_why = Merger(), NOT_OURS
            return [json.dumps({"type": TRAINING, "why": NOT_OURS})]

    def _new_messages(self, is_paused: bool) -> list[str]:
        """Return the messages that follow from the newest lines; `is_paused`: whether one of them tells of a pause.

        They tell new ends of iterations, with the counts so far; once, that the training has begun; each pause, because
        a probe measures its silence from the newest; and why nothing is counted, where that has changed.
        """
        marks = list(self._merger.new_marks())
        messages: list[dict[str, Any]] = [{"type": "iteration", COUNTED: True, **mark} for mark in marks]
        if marks and (training := self._merger.training()):
            messages.append({"type": TRAINING, "counts": asdict(training)})
        if not self._has_begun and self._merger.trainers:
            self._has_begun = True
            messages.append({"type": TRAINING, "begun": True})
        if is_paused:
            messages.append({"type": TRAINING, "paused": True})
        if self._merger.why != self._last_why:
            self._last_why = self._merger.why
            messages.append({"type": TRAINING, "why": self._last_why})
        return [json.dumps(message) for message in messages]


def read_processes(folder: Path) -> list[ProcessCounts]:
    """Return what the processes of an ended probe have told."""
    files = MergedCounts(CountLines(folder, USUAL_BOUNDS.log_bytes).read)
    files.read()
    return files.processes


@cache
def _adapter() -> TypeAdapter[TrainingCounts]:
    """Return the adapter that checks counts; it is built late, because that takes long and most commands read none."""
    return TypeAdapter(TrainingCounts)


def counts(message: object) -> TrainingCounts | None:
    """Return the counts in the field `counts` of a message; None for anything else."""
    try:
        return _adapter().validate_python(message) if message else None
    except ValidationError:
        return None
