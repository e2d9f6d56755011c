"""Which rank keeps a probe from its next iteration: one that lags behind, or one that is none of the plan's. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from tuner.probe.result import Progress


@dataclass(frozen=True, kw_only=True, slots=True)
class Laggard:
    """A rank that all others wait for."""

    rank: int
    text: str
    """What is wrong with it."""
    is_stray: bool = False
    """Whether it is numbered otherwise than the plan's ranks, so that one of these can never tell anything."""


def laggard(progress: Iterable[Progress], ranks: int) -> Laggard | None:
    """Give the rank that is more than the one iteration behind another that ranks in step can be, if one is.

    A rank that the plan does not have is to blame where one that it has is silent.
    """
    reached = dict.fromkeys(range(ranks), -1)
    told = {one.rank: one.iteration for one in progress if one.rank is not None}
    reached |= {rank: iteration for rank, iteration in told.items() if rank in reached}
    slowest = min(reached, key=reached.__getitem__)
    if stray := sorted(told.keys() - reached.keys()) if reached[slowest] < 0 else []:
        text = f"rank {stray[-1]} tells iterations, but the ranks of {ranks} device(s) are counted from 0"
        return Laggard(rank=stray[-1], text=text, is_stray=True)
    if reached[slowest] >= max(reached.values()) - 1:
        return None
    silent = "has told no iteration; leave `rank` out where one speaks for all"
    return Laggard(rank=slowest, text=f"rank {slowest} {'fell behind' if reached[slowest] >= 0 else silent}")
