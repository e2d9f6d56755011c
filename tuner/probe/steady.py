"""How well a mean over a window is known, and when that is well enough. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

LEAST_BLOCKS = 3
"""Below this many blocks a spread says nothing."""
CLEARLY_WORSE = 4.0
"""Standard errors between a probe and the best that settle which one is better."""
MAX_CORRELATION = 0.8
"""Estimates of the correlation above this are noise at the few blocks that a probe has."""


@dataclass(frozen=True, slots=True)
class Block:
    """The mean over one or more whole iterations."""

    seconds: float
    value: float


def standard_error(blocks: Sequence[Block]) -> float | None:
    """Estimate the standard error of the time-weighted mean over blocks; None below `LEAST_BLOCKS`.

    The ratio estimator's error (Cochran, Sampling Techniques, 1977, section 6.3), widened for neighbouring blocks that
    resemble each other by the effective sample size of a first-order autoregression, n (1 - r) / (1 + r) (von Storch
    and Zwiers, Statistical Analysis in Climate Research, 1999, section 6.6). The lag-1 correlation r is corrected for
    its bias of -(1 + 4 r) / n (Kendall, 1954) and taken as 0 where negative; the result is widened for small n as
    Student's t is (its variance over the normal's, (n - 1) / (n - 3), as a standard deviation and at most twofold).
    """
    count = len(blocks)
    if count < LEAST_BLOCKS:
        return None
    seconds = fmean(block.seconds for block in blocks)
    mean = sum(block.seconds * block.value for block in blocks) / (count * seconds)
    residuals = [block.seconds / seconds * (block.value - mean) for block in blocks]
    squares = sum(residual**2 for residual in residuals)
    if squares == 0.0:
        return 0.0
    variance = squares / (count - 1) / count
    lagged = sum(one * other for one, other in pairwise(residuals)) / squares
    correlation = min(max((count * lagged + 1) / (count - 4), 0.0), MAX_CORRELATION) if count > 4 else max(lagged, 0.0)
    small = min(2.0, math.sqrt((count - 1) / (count - 3))) if count > 3 else 2.0
    return small * math.sqrt(variance * (1 + correlation) / (1 - correlation))


def known_well_enough(value: float, error: float | None, *, target: float, best: float | None) -> bool:
    """Tell whether more iterations would change nothing: the error is below `target`, or the probe clearly loses."""
    if error is None:
        return False
    return error <= target or (best is not None and best - value >= CLEARLY_WORSE * error)
