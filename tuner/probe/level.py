"""Finds where the iterations of a probe change to another level, for example when compilation ends. Pure."""

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise

LEAST_S, LEAST_SHARE = 0.05, 0.01
"""Iterations are averaged over at least this many seconds and this share of all: reports may come in bursts."""
MATERIAL = math.log(1.25)
"""A smaller change of the duration, on the logarithmic scale, is left to the scatter of the iterations."""
CHANCE = 0.001
"""A change counts if chance alone would show a change as clear with at most this probability."""
USUAL_SCATTER, LEVEL_WEIGHT = 0.1, 2
"""The usual scatter of the logarithm of a duration, and its weight in iterations: a few equal ones prove little."""


def last_level(durations_s: Sequence[float]) -> int:
    """Return the position of the first iteration of the last level, or 0 where the durations show a single level.

    The last part is split again and again while it contains a change (binary segmentation; Scott and Knott, 1974).
    """
    groups = _groups(durations_s)
    logs = [math.log((sum(durations_s[begin:end])) / (end - begin)) for begin, end in groups]
    first = 0
    while (change := change_point(logs[first:])) is not None:
        first += change
    return groups[first][0] if first else 0


def _groups(durations_s: Sequence[float]) -> list[tuple[int, int]]:
    """Return where groups of neighbouring iterations begin and end. A rest below `LEAST_S` is left out."""
    least_s = max(LEAST_S, LEAST_SHARE * sum(durations_s))
    groups: list[tuple[int, int]] = []
    begin, seconds = 0, 0.0
    for place, duration_s in enumerate(durations_s, start=1):
        seconds += duration_s
        if seconds >= least_s:
            groups.append((begin, place))
            begin, seconds = place, 0.0
    return [*groups, (begin, len(durations_s))] if seconds >= LEAST_S else groups


def change_point(values: Sequence[float]) -> int | None:
    """Return the position at which the mean of the values changes most clearly; None where no change is certain.

    The test is the likelihood ratio test for one change of a normal mean (Worsley, Journal of the American Statistical
    Association 74, 1979): the largest t statistic over all positions. Bonferroni's inequality bounds its probability.
    The variance is moderated as in `tuner.probe.steady.standard_error`. A last value that is longer than the others may
    be a pause, so this value alone is no level.
    """
    count = len(values)
    sums = list(accumulate(values, initial=0.0))
    squares = list(accumulate((value**2 for value in values), initial=0.0))
    best: tuple[float, int] | None = None
    for place in range(1, count):
        before, after = sums[place] / place, (sums[-1] - sums[place]) / (count - place)
        inside = squares[-1] - place * before**2 - (count - place) * after**2
        variance = (max(inside, 0.0) + LEVEL_WEIGHT * USUAL_SCATTER**2) / (count - 2 + LEVEL_WEIGHT)
        t = abs(after - before) / math.sqrt(variance * (1 / place + 1 / (count - place)))
        is_pause = place == count - 1 and after > before
        if abs(after - before) >= MATERIAL and not is_pause and (best is None or t > best[0]):
            best = t, place
    if best is None or (count - 1) * student_tail(best[0], count - 2 + LEVEL_WEIGHT) > CHANCE:
        return None
    return best[1]


def student_tail(t: float, freedom: int) -> float:
    """Return the probability that a Student t variate lies further from 0 than `t`.

    The finite sums are those of Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
    """
    angle = math.atan2(t, math.sqrt(freedom))
    odd = freedom % 2
    term, total = (math.cos(angle), math.cos(angle)) if odd else (1.0, 1.0)
    for place in range(2 + odd, freedom - 1, 2):
        term *= math.cos(angle) ** 2 * (place - 1) / place
        total += term
    inside = (
        2 / math.pi * (angle + (math.sin(angle) * total if freedom > 1 else 0.0)) if odd else math.sin(angle) * total
    )
    return max(0.0, 1.0 - inside)


def durations(times_s: Sequence[float]) -> list[float]:
    """Return the seconds between neighbouring times."""
    return [later - earlier for earlier, later in pairwise(times_s)]
