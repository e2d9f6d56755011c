"""Which configs a search probes first. Pure."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tuner.search.gain.pool import Pool

BEGIN = 0.5
"""The height on the ladder, from 0 to 1, of the first probe."""
UP_FROM = 0.6
"""The second probe is the same config on a higher rung, unless the first is above this height."""


def first(pool: Pool, may_run: NDArray[np.bool_], failed: Sequence[int]) -> int:
    """Begin in the middle of the ladder; after each failure, half-way down from the config that failed."""
    height = min([BEGIN, *(pool.heights[place] / 2.0 for place in failed)])
    return int(min(np.flatnonzero(may_run), key=lambda place: abs(pool.heights[place] - height)))


def upward(pool: Pool, seen: Sequence[int], safe: NDArray[np.bool_]) -> int | None:
    """Choose the first config again on the highest rung that is safe; None where no higher rung is safe.

    A config on two rungs far apart shows how value, memory and seconds grow, and most configs are best on high rungs.
    None also once another config has been measured, or if the search is high enough. `seen` are the places of the
    configs that have been measured.
    """
    heights, codes = pool.heights, pool.codes
    others = [at for at in range(codes.shape[1]) if at != pool.levels.ladder]
    highest = max(seen, key=lambda at: heights[at])
    if heights[highest] > UP_FROM or len(np.unique(codes[list(seen)][:, others], axis=0)) > 1:
        return None
    above = np.flatnonzero(safe & (heights > heights[highest]))
    return max(above.tolist(), key=lambda at: (heights[at], (codes[at] == codes[highest]).sum()), default=None)
