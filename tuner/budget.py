"""The time that a command may take."""

import math
from dataclasses import replace

from tuner.job import Job
from tuner.probe.protocols import Clock
from tuner.units import HOUR_S


class Budget:
    """The time that probes may take: `hours` from now on, or no limit where `hours` is None."""

    def __init__(self, clock: Clock, hours: float | None) -> None:
        self._clock = clock
        self.whole_s = math.inf if hours is None else hours * HOUR_S
        self._end_s = clock.now() + self.whole_s
        self.short: tuple[float, float] | None = None
        """The seconds that the next probe needed and the seconds that were left, where these ended the budget."""

    def over(self) -> bool:
        """Return whether the time is over, or the rest is too short for a probe."""
        return self.short is not None or self._clock.now() >= self._end_s

    def allows(self, probe_s: float | None) -> bool:
        """Return whether the rest is enough for a probe of so many seconds; if it is not, the budget is over."""
        left_s = self._end_s - self._clock.now()
        if probe_s is not None and probe_s > left_s:
            self.short = probe_s, left_s
        return self.short is None


def within(job: Job, budget: Budget) -> Job:
    """Return the job that ends when its budget is over, and that begins no probe that the budget is too short for.

    A simulated probe takes no time, so its length is ignored.
    """
    limited = replace(job, interrupted=lambda: job.interrupted() or budget.over())
    return limited if job.simulated else replace(limited, has_time=budget.allows)
