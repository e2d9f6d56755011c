"""Follows the files of the counts from inside: what `tuner.count` notes within the trainer's processes, such as steps.

What is new becomes messages: JSON texts like those that a trainer sends by `report()`.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from tuner.count import Merger, ProcessCounts, TrainingCounts
from tuner.probe.output import Tail, json_object

TRAINING = "training"
"""The type of the message about the training: its counts, its beginning, or a pause."""
COUNTED_INSIDE = "counted"
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
        """Merge the counts of one probe's processes. `new_lines`: returns the lines since its last call."""
        self._new_lines = new_lines
        self._merger = Merger()
        self._is_foreign = False
        """Whether another program has written a record, so that no more are read."""
        self.has_begun = False
        """Whether an optimizer has made a step."""
        self.training: TrainingCounts | None = None
        """What was counted so far; None where nothing was."""

    @property
    def why_uncounted(self) -> str | None:
        """Why samples are not counted; None while they are, or may be."""
        return NOT_OURS if self._is_foreign else self._merger.why_uncounted

    @property
    def processes(self) -> list[ProcessCounts]:
        """The records of each process so far."""
        return list(self._merger.processes.values())

    def read(self) -> list[str]:
        """Return the new messages as JSON texts: iterations of all ranks, and facts about the training."""
        if self._is_foreign:
            return []
        try:
            records = [(name, message) for name, text in self._new_lines() if (message := json_object(text))]
            for name, message in records:
                self._merger.feed(name, message)
            is_paused = any(message.get("type") == "pause" for _, message in records)
            return self._new_messages(is_paused) if records else []
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):  # whatever a record holds
            self._merger, self._is_foreign = Merger(), True
            return []

    def _new_messages(self, is_paused: bool) -> list[str]:
        """Return the messages that follow from the newest lines; `is_paused`: whether one of them is about a pause.

        - New ends of iterations, and the counts of the training so far.
        - Once, that the training has begun.
        - Each pause, because a trainer that pauses may be silent for longer.
        """
        marks = list(self._merger.new_marks())
        messages: list[dict[str, Any]] = [{"type": "iteration", COUNTED_INSIDE: True, **mark} for mark in marks]
        if marks and (training := self._merger.training()):
            self.training = training
            messages.append({"type": TRAINING, "counts": asdict(training)})
        if not self.has_begun and self._merger.trainers:
            self.has_begun = True
            messages.append({"type": TRAINING, "begun": True})
        if is_paused:
            messages.append({"type": TRAINING, "paused": True})
        return [json.dumps(message) for message in messages]


@cache
def _adapter() -> TypeAdapter[TrainingCounts]:
    """Return the adapter that checks counts; it is built late, because that takes long and most commands read none."""
    return TypeAdapter(TrainingCounts)


def training_counts(field: object) -> TrainingCounts | None:
    """Return the counts in the field `counts` of a message as an object; None where the field holds anything else."""
    try:
        return _adapter().validate_python(field) if field else None
    except ValidationError:
        return None
