"""Finds what counts in the files that a trainer writes."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from tuner.drafting.columns import ENVIRONMENT, EPISODE, RECURS, Column
from tuner.drafting.progress_found import Found
from tuner.errors import TrainerError, installs
from tuner.probe import (
    STEP,
    Clock,
    FileRow,
    LinePatterns,
    OutputLine,
    Progress,
    ProgressFile,
    ProgressFileReader,
    ProgressReader,
    check_reader,
    number,
    open_rows,
)

MOST_FILES = 50
"""The most files that are looked into."""
MOST_BYTES = 1 << 20
"""The most bytes of a file that are read at once."""
MOST_SEARCHED = 20_000
"""The most files of the working folder that are looked at."""
_NEVER = {"site-packages", "node_modules", "__pycache__"}
EVENTS = "events.out.tfevents"
"""What the names of TensorBoard's files begin with."""

Format = Literal["csv", "jsonl", "tensorboard"]
_FORMATS: Mapping[str, Format] = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}


class WrittenProgress:
    """Follows the progress that a command writes into a file of its folder."""

    def __init__(self, folder: Path, own: Sequence[Path], clock: Clock, origin_s: float) -> None:
        """`own` are files of the tuner. At `origin_s` on the clock, the command started."""
        self._folder = folder
        self._own = frozenset(own)
        self._clock = clock
        self._origin_s = origin_s
        self._file: ProgressFile | None = None
        self._rows: ProgressFileReader | None = None
        self._reader = ProgressReader(LinePatterns(), origin_s)
        self._reports: list[Progress] = []

    def look(self) -> Found | None:
        """Read what was written since the last look. Returns None if no file shows iterations."""
        if self._rows is None:
            self._file = next(filter(None, map(self._understood, self.candidates())), None)
            self._rows = self._file and ProgressFileReader(self._file, self._clock, MOST_BYTES)
        if self._rows is None or self._file is None:
            return None
        for message in self._rows.read():
            line = OutputLine(t_s=self._clock.now() - self._origin_s, text=message, stream="progress")
            if report := self._reader.feed(line):
                self._reports.append(report)
        if not self._reports:
            return None
        last = self._reports[-1]
        shown = f"{self._file.columns.get('iteration', 'row')} {last.iteration} in {self._file.pattern}"
        return Found(preset=None, patterns=(), reports=tuple(self._reports), lines=(shown,), file=self._file)

    def candidates(self) -> list[Path]:
        """Return the files of the folder that may hold progress."""
        files = sorted(path for path in self._folder.rglob("*") if path.is_file() and path not in self._own)
        return [path for path in files if _format(path) is not None][:MOST_FILES]

    def unclear(self) -> str | None:
        """Return what is wrong with the first file that may hold progress; None if there is no such file."""
        file = next(iter(self.candidates()), None)
        if file is None:
            return None
        if _format(file) != "tensorboard":
            return f"{file.name} shows no iterations yet"
        if find_spec("tensorboard") is None:
            return f"{file.name} cannot be read without {installs('tensorboard')}"
        return f"{file.name} shows no iterations yet; TensorBoard writes every 120 s, unless `flush_secs` is less"

    def _understood(self, path: Path) -> ProgressFile | None:
        """Return how a file is read as progress; None if its rows show no iterations."""
        form = _format(path)
        if form is None:
            return None
        file = ProgressFile(
            folder=self._folder, pattern=_file_pattern(path.relative_to(self._folder)), format=form, columns={}
        )
        try:
            check_reader(file)
            rows = list(open_rows(file, path, MOST_BYTES).read())
        except (OSError, ValueError, TrainerError):
            return None
        columns = _columns(rows, is_tensorboard=form == "tensorboard")
        return replace(file, columns=columns) if columns else None


def elsewhere(folder: Path, out_dir: Path) -> Path | None:
    """Return a file below `folder` that may hold progress and is newer than `out_dir`; None where there is none.

    Hidden folders, installed packages and what lies below `out_dir` are left out.
    """
    if folder.is_relative_to(out_dir):
        return None
    searched, since_s = 0, _changed_s(out_dir)
    for root, folders, names in os.walk(folder):
        inner = [name for name in sorted(folders) if not name.startswith(".") and name not in _NEVER]
        folders[:] = [name for name in inner if Path(root, name) != out_dir]
        for path in (Path(root, name) for name in names):
            if _format(path) is not None and _changed_s(path) > since_s:
                return path
        searched += len(names)
        if searched > MOST_SEARCHED:
            break
    return None


def _changed_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _format(path: Path) -> Format | None:
    return "tensorboard" if path.name.startswith(EVENTS) else _FORMATS.get(path.suffix)


def _file_pattern(path: Path) -> str:
    """Return the pattern for a file whose name, or whose folder's name, may have a date or a process in it."""
    parts = [EVENTS + "*" if part.startswith(EVENTS) else part for part in path.parts]
    return "/".join("*" if sum(map(str.isdigit, part)) >= len("20261123") else part for part in parts)


def _columns(rows: Sequence[FileRow], *, is_tensorboard: bool) -> dict[str, str]:
    """Return which columns count iterations and samples; nothing if no column counts."""
    counters = [column for column in _numbers(rows) if column.step and not (column.is_time or column.is_speed)]
    samples = next((column for column in counters if column.counts_samples), None)
    iterations = [column for column in counters if column.counts_iterations or EPISODE.search(column.before)]
    named = min(
        iterations,
        key=lambda column: (not column.counts_iterations, column.counts_epochs, -len(column.values)),
        default=None,
    )
    if is_tensorboard:
        return {"iteration": STEP} if len(rows) >= RECURS else {}
    return {name: column.before for name, column in (("iteration", named), ("samples", samples)) if column}


def _numbers(rows: Sequence[FileRow]) -> Iterator[Column]:
    """Yield the columns with a number in each of their rows."""
    names = list(dict.fromkeys(name for row in rows for name in row.values))
    has_environments = bool(ENVIRONMENT.search(" ".join(names)))
    for place, name in enumerate(names):
        values = [number(row.values[name]) for row in rows if row.values.get(name) not in (None, "")]
        known = tuple(value for value in values if value is not None)
        if known and len(known) == len(values):
            yield Column(place=place, gaps=(name,), values=known, has_environments=has_environments)
