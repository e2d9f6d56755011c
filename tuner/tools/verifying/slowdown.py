"""Whether a config has become slower, how sure that is, and which slowdown such a test would have seen. Pure."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from statistics import NormalDist, fmean
from typing import NamedTuple

from tuner.probe import Quantity, error_of_mean, student_tail

FALSE_ALARM = 0.01
"""The probability with which a test calls a config slower that is just as fast as it must be. Chosen."""
FINE = 0.02
"""A test needs no more runs once it sees a slowdown that is larger than the allowed one by this share. Chosen."""


class Scatter(NamedTuple):
    """How far the speeds of several runs of one config lie apart."""

    share: float
    """The standard deviation as a share of the speed."""
    freedom: int
    """The degrees of freedom of this estimate."""


def scatter(configs: Iterable[Sequence[Quantity]]) -> Scatter:
    """Return the scatter of the runs of one config, pooled over several configs that have run twice at least.

    It is 0.3 % at least (chosen): equal runs may be so by chance.
    """
    squares, freedom = 0.0, 0
    for runs in configs:
        mean = fmean(run.value for run in runs)
        squares += sum((run.value / mean - 1.0) ** 2 for run in runs)
        freedom += len(runs) - 1
    return Scatter(max(math.sqrt(squares / freedom), 0.003), freedom)


def mean(runs: Sequence[Quantity], scatter: Scatter) -> Quantity:
    """Return the mean of some runs of a config. Its error is the larger of that of the runs and that of the scatter."""
    value = fmean(run.value for run in runs)
    error_of_runs = error_of_mean([run.value for run in runs], [run.error for run in runs]) or 0.0
    return Quantity(value, max(error_of_runs, value * scatter.share / math.sqrt(len(runs))))


@dataclass(frozen=True, kw_only=True, slots=True)
class Slowdown:
    """How fast a config is now in multiples of its speed in the study."""

    times: float
    error: float
    """The standard error of `times`."""
    of_study: float
    """The part of this error that comes from the study, and that more runs do not reduce."""
    freedom: int
    """The degrees of freedom of the error."""

    @classmethod
    def of(cls, now: Sequence[Quantity], then: Quantity, readings: int, scatter: Scatter) -> "Slowdown":
        """Return how the runs of now compare with the mean of the study, which is that of so many readings.

        A run of the study is taken to scatter as much as a run of now.
        """
        mean_now = mean(now, scatter)
        then_share = max((then.error or 0.0) / then.value, scatter.share / math.sqrt(readings))
        times = mean_now.over(Quantity(then.value, then_share * then.value))
        of_study = times.value * then_share
        return cls(times=times.value, error=times.error or 0.0, of_study=of_study, freedom=scatter.freedom)

    def is_below(self, at_least: float, waits: float = 0.0) -> bool:
        """Return whether the config is surely slower than `at_least` times its speed in the study (Student's t test).

        It is not where its waits for a processor explain that: without this share of its time it would be faster.
        """
        return at_least - self.times / (1.0 - waits) >= self._limit * self.error

    def is_above(self, at_least: float) -> bool:
        """Return whether the config is surely faster than `at_least` times its speed in the study."""
        return self.times - at_least >= self._limit * self.error

    @property
    def visible(self) -> float:
        """By how much slower than allowed a config must be for the test to see it with 90 % probability (chosen)."""
        return (self._limit + NormalDist().inv_cdf(0.9)) * self.error

    @property
    def is_fine(self) -> bool:
        """Whether more runs are not needed, or would hardly reduce the error: 90 % of it come from the study."""
        return self.visible <= FINE or self.of_study > 0.9 * self.error

    def power(self, slowdown: float, at_least: float) -> float:
        """Return the probability with which such a test sees a slowdown, such as 0.03 for 3 %."""
        return NormalDist().cdf((at_least - (1.0 - slowdown)) / self.error - self._limit)

    @property
    def _limit(self) -> float:
        """The standard errors from which on a slowdown is sure."""
        return next(t for t in map((0.01).__mul__, count(1)) if student_tail(t, self.freedom) <= 2 * FALSE_ALARM)
