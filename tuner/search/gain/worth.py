"""What one more reading may gain, and how sure the best is. Pure."""

import math

import numpy as np
from numpy.typing import NDArray

from tuner.search.arrays import Floats

_erf = np.vectorize(math.erf, otypes=[float])


def below(limit: float, mean: Floats, deviation: Floats) -> Floats:
    """Give the probability that a normal variable stays below `limit`."""
    return 0.5 + 0.5 * _erf((limit - mean) / (math.sqrt(2.0) * deviation))


def excess(mean: Floats, deviation: Floats) -> Floats:
    """Give how far a normal variable exceeds 0 on average, counting as 0 what stays below.

    The expected improvement of Jones, Schonlau and Welch (1998, equation 15).
    """
    density = np.exp(-0.5 * (mean / deviation) ** 2) / math.sqrt(2.0 * math.pi)
    return deviation * density + mean * below(0.0, -mean, deviation)


def worth(mean: Floats, deviation: Floats, error: float, rivals: list[int]) -> Floats:
    """Give by how much one more reading of each config may raise the mean of the best of the `rivals`, on average.

    `error` is the standard error of a reading. One more reading of the best itself is worth what is won where that
    falls behind the second. The knowledge gradient of Frazier, Powell and Dayanik (2008, equation 10), each config
    for itself.
    """
    moves = deviation**2 / np.hypot(deviation, error)
    if not rivals:
        return excess(mean - mean.min(), moves)
    best, *others = sorted(rivals, key=lambda rival: -mean[rival])
    ahead = mean - mean[best]
    gain = excess(ahead, moves)
    gain[best] = excess(ahead[others[0]], moves[best]) if others else 0.0
    return gain


def certainty(truths: Floats, counts: NDArray[np.bool_], best: int, within: float) -> float:
    """Give the share of draws in which the best is, but for `within` of its value, no worse than all that count.

    `truths` and `counts` are config by draw: what may be true, and whether the config then works.
    """
    margin = within * np.abs(truths[best])
    return float(np.mean(truths[best] + margin >= np.where(counts, truths, -np.inf).max(axis=0)))
