"""A cause: something that keeps the GPUs of a study from training, what to change about it, and what that costs."""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What the GPUs wait for. The order is that of the changes' safety, the safest first."""

    FAILURES = "failed trials"
    WORKERS = "few loader workers"
    CROWDED = "more loader workers than cores"
    PRUNING = "pruning with start-up"
    STARTUP = "long start-up"
    PARALLEL = "few parallel trials"
    IDLE = "little work for each GPU"


class Way(StrEnum):
    """How a change comes into a study that runs."""

    ADD = "beside it"
    """More processes start, and nothing stops."""
    RESUME = "resume"
    """The study stops, and goes on with its trials."""
    ANEW = "anew"
    """A new study begins, because the trials so far are not comparable with the next ones."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cause:
    """Something that keeps the GPUs from training, and what to change."""

    kind: Kind
    why: str
    """What in the study shows the cause."""
    change: str
    factor: float | None
    """At most so many times as much would train if only this changed and the GPUs had room; None where unknown."""
    gain: float | None
    """`factor`, or the room that the GPUs have, whichever is smaller."""
    how: str
    """The arithmetic of `gain`."""
    way: Way = Way.RESUME
    undo: str = ""
    """What it costs to take the change back."""
    advice: str | None = None
    """Whether to stop the study for the change; None where nobody said for how long it still runs."""

    @property
    def safety(self) -> int:
        """The place of the change in the order of safety; 0 is the safest."""
        return list(Kind).index(self.kind)


def cause(kind: Kind, *, why: str, change: str, factor: float | None, how: str, duty_pct: float | None) -> Cause:
    """Return a cause whose gain is at most what GPUs with this duty have room for."""
    room = 100.0 / duty_pct if duty_pct else None
    if factor is None or room is None or factor <= room:
        return Cause(kind=kind, why=why, change=change, factor=factor, gain=factor, how=how)
    more = f"GPUs that are {duty_pct:.0f}% busy have room for 100 / {duty_pct:.0f} = {room:.2f} times"
    return Cause(kind=kind, why=why, change=change, factor=factor, gain=room, how=f"{how}; {more}")
