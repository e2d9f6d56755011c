"""The rungs of an `auto` ladder: where to calibrate, and what is made of what that tells. Pure."""

from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile

NEAR, FAR = 1, 4
"""Places among the doublings of the two rungs to calibrate at: small, so that they cost little, and far apart."""
PARTS = 8
"""Of a doubling, into which the way to the next one is divided, so that rungs are handsome numbers."""
STEP = 1.25
"""Times a doubling that a finer rung above it is at least: on two H200s, 34,816 and 36,864 environments read 96.5 ± 0.9
and 96.9 ± 1.0 %, and took seven minutes each."""

Expects = Callable[[int], bool]
"""Tells what is expected of a rung; of a larger one never better than of a smaller one."""


def calibration_rungs(doublings: Sequence[int]) -> list[int]:
    """Give the rungs to try, in their order, until two have run: first the two, then from the far one down."""
    far = min(FAR, len(doublings) - 1)
    near = max(min(NEAR, far - 1), 0)
    return list(dict.fromkeys((doublings[near], *reversed(doublings[: far + 1]))))


def make_rungs(
    doublings: Sequence[int], *, safe: Expects, possible: Expects, tried: Iterable[int] = ()
) -> tuple[int, ...]:
    """Give the doublings that are possible and, where the last safe one is followed by another, finer rungs in between.

    These are the largest safe number, rounded down to parts of a doubling, and the one half-way to it, each where it is
    `STEP` times the last safe doubling or more. The smallest doubling is a rung whatever is expected of it, and so are
    those `tried` already.
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
