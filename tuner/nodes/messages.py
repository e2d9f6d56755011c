"""The requests of the tuner to the watcher of a node, and the times by which each knows that the other side is there.

A watcher is a process on a node, which runs the node's part of a plan for the tuner: see `agent`. A request is one
line; an empty line is a sign of life. The watcher answers with JSON lines, which `Watcher` reads.
"""

import base64
import pickle
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum, auto
from queue import Empty, SimpleQueue
from threading import Event
from typing import Any, NamedTuple

from tuner import errors
from tuner.errors import TunerError
from tuner.probe import Clock, ProbePlan
from tuner.probe.output import USUAL_BOUNDS
from tuner.study import StudySpec

BEAT_S = 1.0
"""Seconds between two signs of life, in both directions."""
SILENT_S = 30.0
"""Seconds without a sign of life after which the other side counts as gone."""
ENDED_WITHIN_S = SILENT_S + BEAT_S + USUAL_BOUNDS.term_grace_s + USUAL_BOUNDS.kill_s
"""Seconds after the tuner's last sign of life, after which a watcher has surely ended its part."""
BEAT = b"\n"
"""A sign of life of the tuner."""


class Opening(NamedTuple):
    """The first request: open the devices that a study names."""

    spec: StudySpec
    number: int
    """The position of the node among those of the trial."""


class Part(NamedTuple):
    """The request to run the node's part of a plan."""

    plan: ProbePlan
    head: str
    """The host of the first node, where the ranks meet."""


class Word(Enum):
    """A request without content."""

    LOOK = auto()
    """Tell who uses the cards."""
    END = auto()
    """End the part that runs."""


Request = Opening | Part | Word


def packed(request: Request) -> bytes:
    """Return a request as one line."""
    return base64.b64encode(pickle.dumps(request)) + b"\n"


class Mailbox:
    """The requests of the tuner as the watcher gets them; they also tell whether the tuner is still there."""

    def __init__(self, clock: Clock) -> None:
        """Begin without requests. `clock`: times the silence of the tuner."""
        self.is_gone = Event()
        """Set once the tuner has closed the pipe, or is not there any more."""
        self._clock, self._heard_s = clock, clock.now()
        self._part_of_line = b""
        self._waiting: SimpleQueue[Request] = SimpleQueue()

    def feed(self, chunk: bytes) -> None:
        """Take the bytes that have come from the tuner; an empty chunk means that it has closed the pipe."""
        self._heard_s = self._clock.now()
        *lines, self._part_of_line = (self._part_of_line + chunk).split(b"\n")
        for line in filter(None, lines):  # an empty line is a mere sign of life
            self._waiting.put(pickle.loads(base64.b64decode(line)))  # noqa: S301 - from our own side of a pipe
        if not chunk:
            self.is_gone.set()

    def next(self, timeout_s: float) -> Request | None:
        """Return the next request; None if none comes within `timeout_s`."""
        with suppress(Empty):
            return self._waiting.get(timeout=timeout_s) if timeout_s else self._waiting.get_nowait()
        return None

    @property
    def is_silent(self) -> bool:
        """Whether the tuner has given no sign of life for too long."""
        return self._clock.now() - self._heard_s > SILENT_S


def refusal(host: str, message: Mapping[str, Any]) -> TunerError:
    """Return the error for a node's message that refuses a request. The message names the class of the error."""
    error_class = getattr(errors, message["error"], TunerError)
    return error_class(f"{host}: {message['why']}")
