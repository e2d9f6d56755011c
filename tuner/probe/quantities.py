"""Quantities: the standard error of a mean, the level of iterations, and units, such as MiB for bytes. Pure."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import fmean, stdev
from typing import NamedTuple


def of_known(combine: Callable[[Sequence[float]], float], numbers: Iterable[float | None]) -> float | None:
    """Return `combine`, such as `max` or `fmean`, of the numbers that are not None; None if all are None."""
    known = [number for number in numbers if number is not None]
    return combine(known) if known else None


def last_level(durations_s: Sequence[float]) -> int:
    """Return the position of the first iteration of the last level, or 0 if the durations show a single level.

    A level is iterations in a row whose durations differ only by scatter. The last level counts as the training's
    usual speed: earlier ones may be a warm-up. The part after a change is searched again for a further change (binary
    segmentation; Scott and Knott, 1974).
    """
    groups = _groups(durations_s)
    log_durations = [math.log(fmean(durations_s[place] for place in group)) for group in groups]
    first_group = 0
    while (change := change_point(log_durations[first_group:])) is not None:
        first_group += change
    return groups[first_group].start if first_group else 0


def _groups(durations_s: Sequence[float]) -> list[range]:
    """Return groups of neighbouring iterations by their positions, as `[range(0, 3), range(3, 5)]`.

    Reports may come in bursts, and then single durations say nothing. So a group takes at least 0.05 s and a hundredth
    of all time (chosen). The last group may be shorter than a hundredth; less than 0.05 s at the end is left out.
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
    """Return the position from which on durations are clearly longer or shorter; None without such a change.

    `values` are natural logarithms of durations, so a difference of two means is the logarithm of their ratio. A change
    by a factor below 1.25 (chosen) is taken for scatter. So is one that pure scatter would show with a probability of
    more than a thousandth.

    The test is the likelihood ratio test for one change of a normal mean (Worsley, Journal of the American Statistical
    Association 74, 1979): the largest t statistic over all positions. Bonferroni's inequality bounds its probability.
    The variance is moderated as in `standard_error`, with a usual scatter of 0.1. A last value that is larger than the
    others may be a pause, so this value alone is no level.
    """
    weight = 2  # that of the usual scatter, in iterations: a few equal iterations prove little (chosen)
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
    """Return the two-sided p-value of a t statistic: the probability that a Student t variate lies further from 0.

    `freedom` is the number of degrees of freedom. The finite sums are those of Abramowitz and Stegun, Handbook of
    Mathematical Functions, 26.7.3 and 26.7.4.
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
"""The usual standard deviation of an iteration's mean, as a share of the idle time, such as 0.12 of 10 % at 90 % busy.

The smaller of this and the other usual scatter applies. On two H200s, iterations scatter by an eighth of the idle time
at every utilisation from 36 to 98 % (`benchmarks/results/measurement.md`). So a busier device scatters less.
"""
USUAL_SHARE_SCATTER = 0.04
"""The least usual standard deviation of an iteration's mean, as a share of the busy or the idle time, the smaller one.

Chosen on recordings of two CPU ranks and half of those of two H200s (`benchmarks/results/measurement.md`). Two
iterations of a half idle device are alike by chance more often than their scatter lets expect.
"""
FULL_PCT = 100.0
"""The busy share of a device that is never idle, in percent."""


class Variation(NamedTuple):
    """How much a quantity usually varies from iteration to iteration."""

    scatter: float
    """The standard deviation of an iteration's mean, as a share of the mean."""
    correlation: float
    """The correlation of neighbouring iterations."""


USUAL_VARIATION = Variation(0.015, 0.3)
"""The variation of utilisation and samples/s. Long recordings on two H200s show correlations of 0.15 to 0.4."""
BURSTS_VARIATION = Variation(0.08, 0.5)
"""The variation of samples/s in whole rounds of a loader's workers, which come in bursts and are slow at times."""
SM_VARIATION = Variation(0.042, 0.45)
"""The variation of the share of multiprocessors with work.

In a run of 210 s on two H200s, windows of one, four and eight iterations had standard deviations of 4.2, 3.2 and 2.3 %
of the mean. A first-order autoregression with a correlation of 0.55 gives 4.2, 3.1 and 2.5 %. Of windows cut from such
a series, 92 to 99 % hold the whole mean within twice the error with the correlation given here.
"""


class Block(NamedTuple):
    """One or more whole iterations: their length, and the mean of a quantity over them."""

    seconds: float
    value: float


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number and its standard error. The errors of two numbers are independent."""

    value: float
    error: float | None = None
    """The standard error; None where it is unknown."""
    edge_error: float = 0.0
    """The part of `error` that comes from the ends of pieces of a window, where no reading lies.

    More iterations do not reduce it: see `summaries.piece_mean`.
    """

    def times(self, factor: float) -> "Quantity":
        """Return the product with an exact number."""
        return Quantity(self.value * factor, None if self.error is None else self.error * abs(factor))

    def divided_by(self, divisor: "Quantity") -> "Quantity":
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


def standard_error(
    blocks: Sequence[Block], *, largest: float = math.inf, variation: Variation = USUAL_VARIATION
) -> float | None:
    """Return the estimated standard error of the time-weighted mean of blocks; None without a block.

    `largest` is the largest possible value of a block, for example `FULL_PCT` for a busy share. `variation` says how
    much the quantity usually varies. A single block has no scatter of its own, so its error is the usual scatter.

    The estimate is the ratio estimator's error (Cochran, Sampling Techniques, 1977, section 6.3) with four changes:

    - The variance is shrunk towards the usual variance, which counts like two more blocks (the moderated variance of
      Smyth, 2004, section 3): three equal blocks do not prove that a run is steady.
    - A standard deviation of n blocks is too small on average by the factor sqrt((n - 1.5) / (n - 1)). The estimate is
      corrected for this factor (Gurland and Tripathi, 1971).
    - The lag-1 correlation r of the blocks is corrected for its bias of -(1 + 4 r) / n (Kendall, 1954). It is then
      shrunk towards `Variation.correlation`, which counts like ten blocks, because few blocks give mostly noise. It is
      limited to 0 … 0.8.
    - Correlated blocks count as n (1 - r) / (1 + r) independent blocks. This is the effective sample size of a
      first-order autoregression (von Storch and Zwiers, Statistical Analysis in Climate Research, 1999, section 6.6).
    """
    scatter_weight, correlation_weight = 2, 10  # of the usual values, in blocks (chosen)
    count = len(blocks)
    if count < 2:
        return error_of_single_block(blocks[0].value, largest=largest) if blocks else None
    mean_seconds = fmean(block.seconds for block in blocks)
    mean = sum(block.seconds * block.value for block in blocks) / (count * mean_seconds)
    residuals = [block.seconds / mean_seconds * (block.value - mean) for block in blocks]
    usual_scatter = variation.scatter * mean
    if largest < math.inf:
        usual_scatter = max(usual_scatter, USUAL_SHARE_SCATTER * min(mean, largest - mean))
        usual_scatter = min(usual_scatter, USUAL_IDLE_SCATTER * (largest - mean))
    squares = sum(residual**2 for residual in residuals) + scatter_weight * usual_scatter**2
    if squares == 0.0:
        return 0.0
    variance = squares / (count + scatter_weight - 1.5) / count  # of the mean, as of independent blocks
    lagged = sum(earlier * later for earlier, later in pairwise(residuals)) / squares
    # `lagged` is r - (1 + 4 r) / n: solved for r, whose weight is then n - 4 blocks
    correlation = variation.correlation * correlation_weight + count * lagged + 1
    correlation /= correlation_weight + count - 4
    correlation = min(max(correlation, 0.0), 0.8)  # larger estimates are noise
    return math.sqrt(variance * (1 + correlation) / (1 - correlation))


def error_of_single_block(value: float, *, largest: float = math.inf) -> float:
    """Return the usual standard deviation of a block, which has no other blocks to compare it with.

    `value` is the block's mean. `largest` is its largest possible value: near it, a busy device scatters less.

    On two H200s, iterations scatter by 15 % of the mean at low utilisation (`benchmarks/results/measurement.md`).
    """
    return min(0.15 * value, USUAL_IDLE_SCATTER * max(largest - value, 0.0))


def error_of_mean(values: Sequence[float], errors: Sequence[float | None]) -> float | None:
    """Return the estimated standard error of the unweighted mean of several measurements; None if it is not known.

    There are two estimates: one from the errors of the measurements, and one from the scatter of their values. The
    larger estimate is returned, because two starts of a trainer may differ by more than their windows show. The
    Particle Data Group scales errors in the same way ("Unconstrained averaging", introduction of the Review of Particle
    Physics, 2024).
    """
    count = len(values)
    known = [error for error in errors if error is not None]
    by_errors = math.hypot(*known) / count if known and len(known) == count else None
    by_scatter = stdev(values) / math.sqrt(count) if count > 1 else None
    return of_known(max, (by_errors, by_scatter))


def known_well_enough(value: float, error: float, *, target: float, best: float | None) -> bool:
    """Return whether a probe needs no more iterations: its value is precise enough, or its config clearly loses.

    Args:
        value: The value that the probe has measured so far; greater is better.
        error: The standard error of this value.
        target: The standard error that is precise enough.
        best: The value of the best config so far; None without a best. Four standard errors below it, a config loses.
    """
    return error <= target or (best is not None and best - value >= 4.0 * error)


BYTES_PER_MIB = 1 << 20
MIB_PER_GIB = 1024
MINUTE_S = 60
HOUR_S = 3600.0


def mib(size_bytes: float) -> float:
    """Return a size in MiB."""
    return size_bytes / BYTES_PER_MIB


def number_of(count: float | str, noun: str) -> str:
    """Return a number and its noun, as in `1 trial` or `3 trials`."""
    return f"{count} {noun}{'' if count in {1, '1'} else 's'}"


def duration(seconds: float) -> str:
    """Return a duration as text for a person: `8.2 s`, `3 min 05 s`, `2 h 10 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest_s = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest_s:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"
