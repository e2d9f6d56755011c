"""How well a mean is known, over a window or of several readings, and when that is well enough. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, stdev

LEAST_BLOCKS = 2
"""One block has no spread. Two tell enough: on three recorded tables their mean lay 1.0 to 1.1 of the error that they
claim from the mean of the blocks that followed (root mean square)."""
CLEARLY_WORSE = 4.0
"""Standard errors between a probe and the best that settle which one is better."""
USUAL_CORRELATION, USUAL_WEIGHT = 0.3, 10
"""Between neighbouring iterations, as long recordings show it (0.15 to 0.4 on two H200s), and the number of blocks that
would have to speak against it with equal weight: what a probe's few blocks say of it alone is mostly noise."""
USUAL_SCATTER, USUAL_IDLE_SCATTER, SCATTER_WEIGHT = 0.015, 0.12, 2
"""Standard deviation of an iteration's mean as a share of it, or of what is idle where that is less, and the number of
blocks that it counts for: three blocks that happen to agree are no proof of a steady run. On two H200s iterations
scatter by an eighth of what is idle, from 36 to 98 % of utilisation (`benchmarks/results/scatter.md`): the busier, the
less."""
FULL_PCT = 100.0
"""A busy share with nothing idle."""
MAX_CORRELATION = 0.8
"""Estimates above this are noise."""


@dataclass(frozen=True, slots=True)
class Block:
    """The mean over one or more whole iterations."""

    seconds: float
    value: float


def standard_error(blocks: Sequence[Block], *, full: float = math.inf) -> float | None:
    """Estimate the standard error of the time-weighted mean over blocks; None below `LEAST_BLOCKS`.

    `full` is the most that a block can come to, as `FULL_PCT` of a busy share.

    The ratio estimator's error (Cochran, Sampling Techniques, 1977, section 6.3), widened for neighbouring blocks that
    resemble each other by the effective sample size of a first-order autoregression, n (1 - r) / (1 + r) (von Storch
    and Zwiers, Statistical Analysis in Climate Research, 1999, section 6.6). The lag-1 correlation r is corrected for
    its bias of -(1 + 4 r) / n (Kendall, 1954), pulled towards `USUAL_CORRELATION` and taken as 0 where negative. The
    variance is pulled towards the usual one as if that had been seen in `SCATTER_WEIGHT` blocks more (the moderated
    variance of Smyth, 2004, section 3). A standard deviation over few blocks is too small on average by
    sqrt((n - 1.5) / (n - 1)) (Gurland and Tripathi, 1971) and corrected for that.
    """
    count = len(blocks)
    if count < LEAST_BLOCKS:
        return None
    seconds = fmean(block.seconds for block in blocks)
    mean = sum(block.seconds * block.value for block in blocks) / (count * seconds)
    residuals = [block.seconds / seconds * (block.value - mean) for block in blocks]
    usual = min(USUAL_SCATTER * mean, USUAL_IDLE_SCATTER * (full - mean))
    squares = sum(residual**2 for residual in residuals) + SCATTER_WEIGHT * usual**2
    if squares == 0.0:
        return 0.0
    variance = squares / (count + SCATTER_WEIGHT - 1.5) / count
    lagged = sum(one * other for one, other in pairwise(residuals)) / squares
    correlation = (USUAL_CORRELATION * USUAL_WEIGHT + count * lagged + 1) / (USUAL_WEIGHT + count - 4)
    correlation = min(max(correlation, 0.0), MAX_CORRELATION)
    return math.sqrt(variance * (1 + correlation) / (1 - correlation))


def error_of_mean(values: Sequence[float], errors: Sequence[float | None]) -> float | None:
    """Estimate the standard error of the mean of several readings; None where neither errors nor scatter tell it.

    It is what the errors of the readings come to or, where that is more, what their scatter does, as the Particle Data
    Group scales errors ("Unconstrained averaging", introduction of the Review of Particle Physics, 2024): two starts of
    a trainer may differ by more than the window of either shows.
    """
    count = len(values)
    known = [error for error in errors if error is not None]
    of_errors = math.hypot(*known) / count if known and len(known) == count else None
    of_scatter = stdev(values) / math.sqrt(count) if count > 1 else None
    return max((error for error in (of_errors, of_scatter) if error is not None), default=None)


def known_well_enough(value: float, error: float, *, target: float, best: float | None) -> bool:
    """Tell whether more iterations would change nothing: the error is below `target`, or the probe clearly loses."""
    return error <= target or (best is not None and best - value >= CLEARLY_WORSE * error)
