"""Finds where iterations change to another level, and estimates the standard error of a mean. Pure."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import fmean, stdev
from typing import NamedTuple


def over(rule: Callable[[Sequence[float]], float], numbers: Iterable[float | None]) -> float | None:
    """Return what a rule such as `max` makes of the numbers that are known; None if none is known."""
    known = [number for number in numbers if number is not None]
    return rule(known) if known else None


def last_level(durations_s: Sequence[float]) -> int:
    """Return the position of the first iteration of the last level, or 0 if the durations show a single level.

    A level is iterations in a row whose durations differ only by scatter. Only the last level is that of the training.
    The part after a change is split again while it contains another one (binary segmentation; Scott and Knott, 1974).
    """
    groups = _groups(durations_s)
    logs = [math.log(fmean(durations_s[place] for place in group)) for group in groups]
    first_group = 0
    while (change := change_point(logs[first_group:])) is not None:
        first_group += change
    return groups[first_group].start if first_group else 0


def _groups(durations_s: Sequence[float]) -> list[range]:
    """Return groups of neighbouring iterations by their positions, as `[range(0, 3), range(3, 5)]`.

    A group takes at least 0.05 s and a hundredth of all time (chosen), because reports may come in bursts, and single
    durations then say nothing. The last group may be shorter than a hundredth; less than 0.05 s at the end is left out.
    """
    shortest_s = 0.05
    least_s = max(shortest_s, 0.01 * sum(durations_s))
    groups: list[range] = []
    begin, seconds = 0, 0.0
    for end, duration_s in enumerate(durations_s, start=1):
        seconds += duration_s
        if seconds >= least_s:
            groups.append(range(begin, end))
            begin, seconds = end, 0.0
    return [*groups, range(begin, len(durations_s))] if seconds >= shortest_s else groups


def change_point(values: Sequence[float]) -> int | None:
    """Return the position at which the mean of logarithms of durations changes most clearly; None without a change.

    A change of less than a quarter is taken for scatter. So is a change that pure scatter would show with a probability
    of more than a thousandth.

    The test is the likelihood ratio test for one change of a normal mean (Worsley, Journal of the American Statistical
    Association 74, 1979): the largest t statistic over all positions. Bonferroni's inequality bounds its probability.
    The variance is moderated as in `standard_error`, with a usual scatter of 0.1. A last value that is larger than the
    others may be a pause, so this value alone is no level.
    """
    weight = 2  # of the usual scatter, in iterations: a few equal iterations prove little (chosen)
    count = len(values)
    sums = list(accumulate(values, initial=0.0))
    squares = list(accumulate((value**2 for value in values), initial=0.0))
    best_t, best_place = 0.0, None
    for place in range(1, count):  # the first `place` values against all later ones
        mean_before, mean_after = sums[place] / place, (sums[-1] - sums[place]) / (count - place)
        change = abs(mean_after - mean_before)
        residual_squares = squares[-1] - place * mean_before**2 - (count - place) * mean_after**2
        variance = (max(residual_squares, 0.0) + weight * 0.1**2) / (count - 2 + weight)
        t = change / math.sqrt(variance * (1 / place + 1 / (count - place)))
        may_be_pause = place == count - 1 and mean_after > mean_before
        if change >= math.log(1.25) and not may_be_pause and t > best_t:
            best_t, best_place = t, place
    probability = (count - 1) * student_tail(best_t, count - 2 + weight)
    return best_place if probability <= 0.001 else None


def student_tail(t: float, freedom: int) -> float:
    """Return the probability that a Student t variate with some degrees of freedom lies further from 0 than `t`.

    The finite sums are those of Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
    """
    angle = math.atan2(t, math.sqrt(freedom))
    is_odd = freedom % 2 == 1
    term = total = math.cos(angle) if is_odd else 1.0
    for place in range(3 if is_odd else 2, freedom - 1, 2):
        term *= math.cos(angle) ** 2 * (place - 1) / place
        total += term
    inside = math.sin(angle) * total  # the probability within ±t, for an even number of degrees
    if freedom == 1:
        inside = 2 / math.pi * angle
    elif is_odd:
        inside = 2 / math.pi * (angle + inside)
    return max(0.0, 1.0 - inside)


USUAL_IDLE_SCATTER = 0.12
"""The usual standard deviation of an iteration's mean, as a share of the idle rest.

The smaller of this and `Usual.scatter` applies. On two H200s, iterations scatter by an eighth of the idle rest at every
utilisation from 36 to 98 % (`benchmarks/results/measurement.md`). So a busier device scatters less.
"""
FULL_PCT = 100.0
"""The busy share of a device that is never idle, in percent."""


class Usual(NamedTuple):
    """How much a quantity usually varies from iteration to iteration."""

    scatter: float
    """The standard deviation of an iteration's mean, as a share of the mean."""
    correlation: float
    """The correlation of neighbouring iterations."""


OF_UTILISATION = Usual(0.015, 0.3)
"""Of utilisation and samples/s. Long recordings on two H200s show correlations of 0.15 to 0.4."""
OF_BURSTS = Usual(0.08, 0.5)
"""Of samples/s in whole rounds of a loader's workers, which come in bursts and are slow at times."""
OF_SM = Usual(0.042, 0.45)
"""Of the share of multiprocessors with work.

In a run of 210 s on two H200s, windows of one, four and eight iterations had standard deviations of 4.2, 3.2 and 2.3 %
of the mean. A first-order autoregression with a correlation of 0.55 gives 4.2, 3.1 and 2.5 %. Of windows cut from such
a series, 92 to 99 % hold the whole mean within twice the error with the correlation given here.
"""


class Block(NamedTuple):
    """The mean of a quantity over one or more whole iterations, and their length."""

    seconds: float
    value: float


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number and its standard error. The errors of two numbers are independent."""

    value: float
    error: float | None = None
    """The standard error; None where it is unknown."""
    edge_error: float = 0.0
    """The part of `error` of a mean over a window that comes from the ends of thin pieces: see `summaries.piece_mean`.

    More iterations do not reduce it.
    """

    def times(self, factor: float) -> "Quantity":
        """Return the product with an exact number."""
        return Quantity(self.value * factor, None if self.error is None else self.error * abs(factor))

    def over(self, divisor: "Quantity") -> "Quantity":
        """Return the quotient of two numbers."""
        value = self.value / divisor.value
        error = joint_error(self.error, divisor.times(value).error)
        return Quantity(value, error and error / abs(divisor.value))

    def minus(self, less: "Quantity") -> "Quantity":
        """Return the difference of two numbers."""
        return Quantity(self.value - less.value, joint_error(self.error, less.error))


def joint_error(*errors: float | None) -> float | None:
    """Return the standard error of a sum of numbers with independent errors; None where one of them is unknown."""
    known = [error for error in errors if error is not None]
    return math.hypot(*known) if len(known) == len(errors) else None


def standard_error(blocks: Sequence[Block], *, full: float = math.inf, varies: Usual = OF_UTILISATION) -> float | None:
    """Return the standard error of the time-weighted mean of blocks, estimated; None without a block.

    `full` is the largest possible value of a block, for example `FULL_PCT` for a busy share. `varies` says how much the
    quantity usually varies. A single block has no scatter of its own, so its error is the usual scatter of such blocks.

    The estimate is the ratio estimator's error (Cochran, Sampling Techniques, 1977, section 6.3) with four changes:

    - The variance is shrunk towards the usual variance, which counts like two more blocks (the moderated variance of
      Smyth, 2004, section 3): three equal blocks do not prove that a run is steady.
    - A standard deviation of n blocks is too small on average by the factor sqrt((n - 1.5) / (n - 1)). The estimate is
      corrected for this factor (Gurland and Tripathi, 1971).
    - The lag-1 correlation r of the blocks is corrected for its bias of -(1 + 4 r) / n (Kendall, 1954). It is then
      shrunk towards `Usual.correlation`, which counts like ten blocks, because few blocks give mostly noise. It is
      limited to 0 … 0.8.
    - Correlated blocks count as n (1 - r) / (1 + r) independent blocks. This is the effective sample size of a
      first-order autoregression (von Storch and Zwiers, Statistical Analysis in Climate Research, 1999, section 6.6).
    """
    scatter_weight, correlation_weight = 2, 10  # of the usual values, in blocks (chosen)
    count = len(blocks)
    if count < 2:
        return lone_error(blocks[0].value, full=full) if blocks else None
    mean_seconds = fmean(block.seconds for block in blocks)
    mean = sum(block.seconds * block.value for block in blocks) / (count * mean_seconds)
    residuals = [block.seconds / mean_seconds * (block.value - mean) for block in blocks]
    usual_scatter = min(varies.scatter * mean, USUAL_IDLE_SCATTER * (full - mean))
    squares = sum(residual**2 for residual in residuals) + scatter_weight * usual_scatter**2
    if squares == 0.0:
        return 0.0
    variance = squares / (count + scatter_weight - 1.5) / count  # of the mean, as of independent blocks
    lagged = sum(earlier * later for earlier, later in pairwise(residuals)) / squares
    # r + (1 + 4 r) / n, weighted by n blocks, and solved for r
    correlation = varies.correlation * correlation_weight + count * lagged + 1
    correlation /= correlation_weight + count - 4
    correlation = min(max(correlation, 0.0), 0.8)  # larger estimates are noise
    return math.sqrt(variance * (1 + correlation) / (1 - correlation))


def lone_error(value: float, *, full: float = math.inf) -> float:
    """Return the usual standard deviation of a block, for one that has no others to compare it with.

    `full` is the largest possible value, as of `standard_error`: near it, a busy device scatters less.

    On two H200s, iterations scatter by 15 % of the mean at low utilisation (`benchmarks/results/measurement.md`).
    """
    return min(0.15 * value, USUAL_IDLE_SCATTER * max(full - value, 0.0))


def error_of_mean(values: Sequence[float], errors: Sequence[float | None]) -> float | None:
    """Return the standard error of the mean of several measurements, estimated; None if no error is known.

    There are two estimates: one from the errors of the measurements, and one from the scatter of their values. The
    larger estimate is returned, because two starts of a trainer may differ by more than their windows show. The
    Particle Data Group scales errors in the same way ("Unconstrained averaging", introduction of the Review of Particle
    Physics, 2024).
    """
    count = len(values)
    known = [error for error in errors if error is not None]
    by_errors = math.hypot(*known) / count if known and len(known) == count else None
    by_scatter = stdev(values) / math.sqrt(count) if count > 1 else None
    return over(max, (by_errors, by_scatter))


def known_well_enough(value: float, error: float, *, target: float, best: float | None) -> bool:
    """Return whether a probe needs no more iterations: its value is precise enough, or its config clearly loses.

    Args:
        value: The value that the probe has measured so far; greater is better.
        error: The standard error of this value.
        target: The standard error that is precise enough.
        best: The value of the best config so far; None without one. Four standard errors below it, a config loses.
    """
    return error <= target or (best is not None and best - value >= 4.0 * error)
