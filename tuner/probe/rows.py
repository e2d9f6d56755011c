"""The rows of a file with a trainer's progress: CSV, JSON lines, or TensorBoard's events."""

import csv
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from tuner.errors import TrainerError, installs
from tuner.probe.plan import STEP, ProgressFile
from tuner.probe.reader import BOM, record
from tuner.probe.tail import Tail

MOST_EVENTS = 10_000
"""The most events of TensorBoard that are read at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One row of a file."""

    number: int
    """The place of the row in its file, from 1."""
    values: Mapping[str, object]
    """Column → what the file holds there."""
    unix_s: float | None = None
    """When the trainer wrote the row, in seconds since 1970; None where the file does not say."""


class Rows(Protocol):
    """Reads a file that grows."""

    @property
    def left(self) -> int:
        """The bytes that the last call has left unread."""
        ...

    @property
    def unended(self) -> int:
        """The bytes at the end of the file that are no whole row yet."""
        ...

    def read(self) -> Iterator[Row]:
        """Return the rows since the last call, at most a bounded number. Raises OSError or ValueError."""
        ...


def open_rows(file: ProgressFile, path: Path, most_bytes: int) -> Rows:
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
    def left(self) -> int:
        """See `Rows`."""
        return self._tail.left

    @property
    def unended(self) -> int:
        """See `Rows`."""
        return self._tail.unended

    def read(self) -> Iterator[Row]:
        """Return the new rows; see `Rows`."""
        lines = self._tail.read()
        if self._tail.starts != self._starts:
            self._starts, self._number, self._columns = self._tail.starts, 0, []
        for line in lines:
            if self._is_csv and not self._columns:
                self._columns = _cells(line)
                continue
            self._number += 1
            values = dict(zip(self._columns, _cells(line), strict=False)) if self._is_csv else record(line)
            yield Row(number=self._number, values=values)


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

    def read(self) -> Iterator[Row]:
        """Return the new rows; see `Rows`."""
        try:
            for event in islice(self._loader.Load(), MOST_EVENTS):
                yield from self._rows(event)
        except self._broken as error:
            raise ValueError(f"it holds an event that cannot be read: {error}") from error

    def _rows(self, event: Any) -> Iterator[Row]:
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

    def _row(self, event: Any) -> Row:
        self._is_told = True
        self._number += 1
        return Row(number=self._number, values=dict(self._values), unix_s=event.wall_time)

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
