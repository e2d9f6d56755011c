"""Finds the rank that holds up a probe: a rank that lags behind, or a rank that the plan does not have. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from tuner.probe.result import Progress


@dataclass(frozen=True, kw_only=True, slots=True)
class Laggard:
    """A rank that all others wait for."""

    rank: int
    text: str
    """What is wrong with this rank."""
    is_stray: bool = False
    """Whether the plan has no rank of this number, so that one of the plan's ranks can never report."""


def laggard(progress: Iterable[Progress], ranks: int) -> Laggard | None:
    """Return the rank that is more than one iteration behind another rank; None where the ranks are in step.

    Where a rank of the plan is silent and a rank that the plan does not have reports, the latter is returned.
    """
    reached = dict.fromkeys(range(ranks), -1)
    reported = {one.rank: one.iteration for one in progress if one.rank is not None}
    reached |= {rank: iteration for rank, iteration in reported.items() if rank in reached}
    slowest = min(reached, key=reached.__getitem__)
    if stray := sorted(reported.keys() - reached.keys()) if reached[slowest] < 0 else []:
        text = f"rank {stray[-1]} reports iterations, but the ranks of {ranks} device(s) are counted from 0"
        return Laggard(rank=stray[-1], text=text, is_stray=True)
    if reached[slowest] >= max(reached.values()) - 1:
        return None
    silent = "has reported no iteration; leave `rank` out if one rank reports for all ranks"
    return Laggard(rank=slowest, text=f"rank {slowest} {'fell behind' if reached[slowest] >= 0 else silent}")
