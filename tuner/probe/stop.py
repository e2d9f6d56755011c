"""The answers that a running probe gets when it asks whether to go on. Pure."""

from collections.abc import Callable
from dataclasses import dataclass

from tuner.probe.result import ProbeResult


@dataclass(frozen=True, slots=True)
class Go:
    """The probe goes on."""


@dataclass(frozen=True, slots=True)
class More:
    """The value is far from known: the probe goes on beyond its usual iterations, as long as it has time."""


@dataclass(frozen=True, slots=True)
class LastIteration:
    """The value will be known well enough after the iteration that runs now; a session need not start another."""


@dataclass(frozen=True, slots=True)
class Enough:
    """The value is known well enough: the probe ends and its value counts."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """The probe cannot win and ends."""

    why: str


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The user wants to stop, or the time is over: the probe ends and its value does not count."""


Answer = Go | More | LastIteration | Enough | Pruned | Interrupted
Stop = Callable[[ProbeResult | None], Answer]
"""A probe calls this function after every iteration with the result so far, and with None at every other poll."""


def never(_: ProbeResult | None) -> Go:
    """Let the probe run to its end; a `stop` for callers who never end a probe early."""
    return Go()


def remembering(stop: Stop) -> Stop:
    """Return a `stop` that answers `Enough` one iteration after `stop` has answered `LastIteration`.

    `Pruned`, `Enough` and `Interrupted` pass unchanged.
    """
    announced = False

    def answer(so_far: ProbeResult | None) -> Answer:
        nonlocal announced
        given = stop(so_far)
        if so_far is None:
            return given
        if announced and isinstance(given, Go | More | LastIteration):
            return Enough()
        announced = isinstance(given, LastIteration)
        return given

    return answer
