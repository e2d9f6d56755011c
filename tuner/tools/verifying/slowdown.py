"""Whether a config has become slower, how sure that is, and which slowdown such a test would have seen. Pure.

Speeds are compared as a ratio: the speed now over the speed that the study has measured. `at_least` is the least
ratio that the user allows, such as 0.99.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from statistics import NormalDist, fmean
from typing import NamedTuple

from tuner.probe import Quantity, error_of_mean, student_tail

FALSE_ALARM = 0.01
"""The probability with which a test calls a config slower that is just as fast as it must be. Chosen."""
PRECISE = 0.02
"""A test needs no more runs once it sees a slowdown that is larger than the allowed one by this share. Chosen."""


class Scatter(NamedTuple):
    """How far the speeds of several runs of one config lie apart."""

    share: float
    """The standard deviation as a share of the speed."""
    freedom: int
    """The degrees of freedom of this estimate."""


def scatter(configs: Iterable[Sequence[Quantity]]) -> Scatter:
    """Return how far the runs of one config scatter: the pooled relative standard deviation of several configs.

    `configs`: for each config the speeds of its runs, two at least. The scatter is 0.3 % at least (chosen): runs may be
    equal by chance.
    """
    squares, freedom = 0.0, 0
    for runs in configs:
        mean = fmean(run.value for run in runs)
        squares += sum((run.value / mean - 1.0) ** 2 for run in runs)
        freedom += len(runs) - 1
    return Scatter(max(math.sqrt(squares / freedom), 0.003), freedom)


def mean(runs: Sequence[Quantity], scatter: Scatter) -> Quantity:
    """Return the mean speed of some runs of a config, with its standard error.

    The error is the larger of two estimates: from these runs alone, and from the `scatter` of all configs' runs.
    """
    value = fmean(run.value for run in runs)
    by_runs = error_of_mean([run.value for run in runs], [run.error for run in runs]) or 0.0
    by_scatter = value * scatter.share / math.sqrt(len(runs))
    return Quantity(value, max(by_runs, by_scatter))


@dataclass(frozen=True, kw_only=True, slots=True)
class Slowdown:
    """How fast a config is now in multiples of its speed in the study, and how sure that is."""

    ratio: float
    error: float
    """The standard error of `ratio`."""
    of_study: float
    """The part of this error that comes from the study, and that more runs do not reduce."""
    freedom: int
    """The degrees of freedom of the error."""

    @classmethod
    def of(cls, now: Sequence[Quantity], before: Quantity, readings: int, scatter: Scatter) -> "Slowdown":
        """Return how the speeds of new runs compare with the speed that the study has measured.

        Args:
            now: The speed of each new run.
            before: The speed in the study.
            readings: The number of measurements of which `before` is the mean.
            scatter: How far new runs lie apart. Those of the study are taken to scatter as much.
        """
        mean_now = mean(now, scatter)
        # the standard error of the speed in the study, as a share of it
        error_share = max((before.error or 0.0) / before.value, scatter.share / math.sqrt(readings))
        ratio = mean_now.divided_by(Quantity(before.value, error_share * before.value))
        of_study = ratio.value * error_share
        return cls(ratio=ratio.value, error=ratio.error or 0.0, of_study=of_study, freedom=scatter.freedom)

    def is_below(self, at_least: float, delayed_share: float = 0.0) -> bool:
        """Return whether the config is surely slower than `at_least` times its speed in the study (Student's t test).

        `delayed_share` is the share of its time in which it waited for a processor that other programs used. The speed
        is judged as if it had not waited: those programs may be at fault.
        """
        ratio_without_delays = self.ratio / (1.0 - delayed_share)
        return at_least - ratio_without_delays >= self._critical_errors * self.error

    def is_above(self, at_least: float) -> bool:
        """Return whether the config is surely faster than `at_least` times its speed in the study."""
        return self.ratio - at_least >= self._critical_errors * self.error

    @property
    def detectable(self) -> float:
        """The slowdown that the test sees with 90 % probability (chosen): the share of speed lost beyond `at_least`."""
        return (self._critical_errors + NormalDist().inv_cdf(0.9)) * self.error

    @property
    def is_precise(self) -> bool:
        """Whether no more runs are needed: small slowdowns are seen, or more than 90 % of the error is the study's."""
        return self.detectable <= PRECISE or self.of_study > 0.9 * self.error

    def power(self, slowdown: float, at_least: float) -> float:
        """Return the power of the test: the probability with which it sees a `slowdown`, such as 0.03 for 3 %."""
        return NormalDist().cdf((at_least - (1.0 - slowdown)) / self.error - self._critical_errors)

    @property
    def _critical_errors(self) -> float:
        """How many standard errors a difference must have to be sure, by Student's one-sided test, in steps of 0.01."""
        steps = (0.01 * step for step in count(1))
        both_tails = 2 * FALSE_ALARM  # of which `student_tail` is the probability
        return next(errors for errors in steps if student_tail(errors, self.freedom) <= both_tails)
