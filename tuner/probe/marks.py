"""The marks of a probe: the moments at which every rank had finished an iteration. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from tuner.probe.result import Pause, Progress, Thin


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """The moment at which every rank had finished an iteration."""

    iteration: int
    t_s: float
    samples: int | None = None
    """The number of samples of all ranks together so far."""
    samples_per_s: float | None = None
    """The speed of all ranks together since the mark before, as the trainer prints it."""
    thin: Thin | None = None
    """The part of the iteration that was shortened on all ranks at the same time, if there was one."""
    pause: Pause | None = None
    """What else the trainer may have done in the iteration."""
    pause_s: float = 0.0
    """The seconds at the beginning of the iteration in which nothing was trained."""


def marks(progress: Sequence[Progress], ranks: int) -> list[Mark]:
    """Return a mark for each iteration that all ranks have finished.

    If ranks report for themselves, an iteration is finished once all `ranks` have reported it. Its mark has the time of
    the last report. Reports without a rank are then ignored.
    """
    by_rank = [report for report in progress if report.rank is not None and report.rank < ranks]
    if not by_rank:
        return [_mark([report], 1) for report in progress if report.rank is None]
    whole: list[Mark] = []
    waiting: dict[int, list[Progress]] = {}
    for report in by_rank:
        closed = waiting.setdefault(report.iteration, [])
        closed.append(report)
        if len(closed) == ranks:
            whole.append(_mark(closed, ranks))
    return whole


def _mark(closed: Sequence[Progress], ranks: int) -> Mark:
    counts = [one.samples for one in closed if one.samples is not None]
    speeds = [one.samples_per_s for one in closed if one.samples_per_s is not None]
    return Mark(
        iteration=closed[0].iteration,
        t_s=max(one.t_s for one in closed),
        samples=sum(counts) if len(counts) == ranks else None,
        samples_per_s=sum(speeds) if len(speeds) == ranks else None,
        thin=_thin_on_all([one.thin for one in closed]),
        pause=next((one.pause for one in closed if one.pause), None),
    )


def counted(marks: Sequence[Mark], samples_per_iteration: float | None) -> list[Mark]:
    """Return the marks with samples counted by their iterations, if the trainer counts no samples itself.

    The iteration of a mark is the number that the trainer prints. Iterations between two marks therefore count, too.
    """
    if samples_per_iteration is None or any(mark.samples is not None for mark in marks):
        return list(marks)
    return [replace(mark, samples=round(mark.iteration * samples_per_iteration)) for mark in marks]


def _thin_on_all(parts: Sequence[Thin | None]) -> Thin | None:
    """Return the part that is thin on all ranks. It begins when the last rank reaches its thin part.

    Until then the other ranks wait for the last one.
    """
    known = [thin for thin in parts if thin is not None]
    return max(known, key=attrgetter("from_s")) if len(known) == len(parts) else None
