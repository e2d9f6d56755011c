"""The rungs of an `auto` ladder: which rungs calibration probes, and which rungs follow from the results. Pure."""

from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile

NEAR, FAR = 1, 4
"""Which two doublings calibration probes first, counted from 0: both small, and so cheap, but far apart."""
PARTS = 8
"""A finer rung is a multiple of the doubling below it divided by this number, so that rungs are round numbers."""
STEP = 1.25
"""The smallest ratio of a finer rung to the doubling below it.

Rungs closer together measure the same: on two H200s, 34,816 and 36,864 environments differed by less than their
errors. A probe of either took seven minutes.
"""

Expects = Callable[[int], bool]
"""Says whether a rung is expected to be safe, or possible. If a rung is, so are all smaller rungs."""


def calibration_rungs(doublings: Sequence[int]) -> list[int]:
    """Return the rungs to probe, in order, until two have run: the near one, the far one, then downwards from there."""
    far = min(FAR, len(doublings) - 1)
    near = max(min(NEAR, far - 1), 0)
    return list(dict.fromkeys((doublings[near], *reversed(doublings[: far + 1]))))


def make_rungs(
    doublings: Sequence[int], *, safe: Expects, possible: Expects, tried: Iterable[int] = ()
) -> tuple[int, ...]:
    """Return the possible doublings, the finer rungs where safety ends between two doublings, and all rungs `tried`.

    There are up to two finer rungs: the largest safe number, and the number half-way from the last safe doubling to
    it. Each must be at least `STEP` times that doubling. The smallest doubling is always a rung.
    """
    kept = [doublings[0], *takewhile(possible, doublings)]
    return tuple(sorted({*kept, *_towards_the_end(doublings, safe), *tried}))


def _towards_the_end(doublings: Sequence[int], safe: Expects) -> list[int]:
    reached = list(takewhile(safe, doublings))
    if not 0 < len(reached) < len(doublings):
        return []
    last, beyond = reached[-1], doublings[len(reached)]
    part = max(last // PARTS, 1)
    *_, end = takewhile(safe, range(last, beyond, part))
    return [rung for rung in ((last + end) // 2, end) if rung >= STEP * last]
