"""Follows the files in which the processes of a training tell what they count."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tuner.count import Merger, ProcessCounts, TrainingCounts
from tuner.probe.output import USUAL_BOUNDS, Tail, record

TRAINING = "training"
"""The type of the message that says what is trained and what was counted."""
COUNTED = "counted"
"""The field of a message whose samples were counted inside the training."""

NOT_OURS = "a record of the counts has another form, so another program has written it"


class CountFiles:
    """Reads the files of one probe, from before they exist to their last lines."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._tails: dict[str, Tail] = {}
        self._merger = Merger()
        self._said: str | None = None
        self._has_begun = self._paused = False

    @property
    def processes(self) -> list[ProcessCounts]:
        """What each process has told so far."""
        return list(self._merger.processes.values())

    def read(self) -> list[str]:
        """Return the new messages as JSON texts: iterations of all ranks, and what is trained."""
        try:
            return self._new_messages() if self._said != NOT_OURS and self._feed() else []
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):  # whatever a record holds
            self._merger, self._said = Merger(), NOT_OURS
            return [json.dumps({"type": TRAINING, "why": NOT_OURS})]

    def _new_messages(self) -> list[str]:
        marks = list(self._merger.marks())
        messages: list[dict[str, Any]] = [{"type": "iteration", COUNTED: True, **mark} for mark in marks]
        if marks and (training := self._merger.training()):
            messages.append({"type": TRAINING, "counts": asdict(training)})
        if not self._has_begun and self._merger.trainers:
            self._has_begun = True
            messages.append({"type": TRAINING, "begun": True})
        if self._paused:
            messages.append({"type": TRAINING, "paused": True})
        if self._merger.why != self._said:
            self._said = self._merger.why
            messages.append({"type": TRAINING, "why": self._said})
        return [json.dumps(message) for message in messages]

    def _feed(self) -> bool:
        """Take the new lines into account; return whether there are any."""
        try:
            names = sorted(entry.name for entry in self._folder.iterdir() if entry.name.endswith(".jsonl"))
        except OSError:
            return False
        has_new = self._paused = False
        for name in names[:4096]:  # a rank, and helpers beside it
            tail = self._tails.setdefault(name, Tail(self._folder / name, self._most_bytes))
            for message in _messages(tail):
                self._merger.feed(name, message)
                self._paused |= message.get("type") == "pause"
                has_new = True
        return has_new


def read_processes(folder: Path) -> list[ProcessCounts]:
    """Return what the processes of an ended probe have told."""
    files = CountFiles(folder, USUAL_BOUNDS.log_bytes)
    files.read()
    return files.processes


_COUNTS = TypeAdapter(TrainingCounts)


def counts(message: object) -> TrainingCounts | None:
    """Return the counts that a message holds; None for any other message."""
    try:
        return _COUNTS.validate_python(message) if message else None
    except ValidationError:
        return None


def _messages(tail: Tail) -> list[dict[str, Any]]:
    try:
        lines = tail.read()
    except OSError:
        return []
    return [message for line in lines if (message := record(line))]
