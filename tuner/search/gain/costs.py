"""Predicts the memory and the seconds that a probe of each config takes, and whether the config will run."""

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from tuner.kept.trial import MEMORY_SHARE, RUN_S, START_S
from tuner.search.choosing import Price
from tuner.search.gain.failing import SURE_AFTER, Cause, Failing, causes
from tuner.search.gain.pool import Codes, Pool
from tuner.search.gain.prospects import below
from tuner.search.needs import GROWN, HOST_MEMORY, MEMORYLESS, Floats, Growth, inherited
from tuner.search.observed import Observed
from tuner.study import Config, ProbeSpec

USUAL_START_S, USUAL_RUN_S = 60.0, 20.0
"""The seconds of a start and of a run that are expected before the first measurement."""
GROWN_S = 0.25
"""The share of the first measured seconds that is expected to come from the environments.

Half-way up the ladder, most seconds do not depend on the number of environments. On two H200s a quarter of the 17 s at
1,024 environments does.
"""
LIKELY = 0.5
"""After `SURE_AFTER` failures that are not memory or time, a config must run with at least this probability."""
HOST_FITS, LEAST_HOST_FITS = 0.25, 0.12
"""The probability that a config runs whose sizes have at least the product of one that ran out of the host's memory.

It falls with each config that ran out, but never so far that the search rules the others out.
"""
MEMORY_CHOICES, START_CHOICES, RUN_CHOICES = 0.25, 0.3, 0.5
"""How far a choice usually changes memory, a start and a run, as a logarithm."""

Expected = tuple[Floats, Floats]
"""The mean and the standard deviation of an amount for each config."""


class Costs:
    """Predicts the cost of each config of a pool from the measured costs of this case and its siblings."""

    def __init__(self, pool: Pool, observed: Observed, limits: ProbeSpec) -> None:
        self._pool = pool
        self._observed = observed
        self._limits = limits

    @cached_property
    def runs(self) -> Floats:
        """The probability that each config fits into memory, headroom included, and starts in time."""
        unfailing = self._failing.runs(self._pool.codes)
        if len(self._observed.failed) >= SURE_AFTER:
            unfailing[unfailing < LIKELY] = 0.0
        runs = self.fits * (1.0 - self.slow) * unfailing
        for one in self.causes:
            runs *= [config.get(one.name) != one.value for config in self._pool.configs]
        return runs

    @cached_property
    def causes(self) -> Sequence[Cause]:
        """The choices that never ran, and failed for another reason than memory or time: see `failing.causes`."""
        return causes([one.config for one in self._observed.measured.values()], self._observed.failed)

    @cached_property
    def fits(self) -> Floats:
        """The probability that each config fits into memory, headroom included; 1 until a share has been measured.

        That is the memory of the devices and of the host.
        """
        memory = self._growth(
            MEMORY_SHARE,
            error=0.03,
            choices=MEMORY_CHOICES,
            grown=GROWN,
            ignored=MEMORYLESS,
            over=self._observed.ran_out,
        )
        if memory is None:
            return self._fits_host
        means, deviations = memory.logarithms(self._pool.configs)
        return below(math.log(1.0 - self._limits.headroom_pct / 100.0), means, deviations) * self._fits_host

    @cached_property
    def _fits_host(self) -> Floats:
        """The probability that each config fits into the memory of the host.

        The queue of a DataLoader holds so many batches: workers times prefetch factor. So the product of all sizes
        tells which configs need as much as one that ran out, unless one with a larger product has run.
        """
        if not self._observed.host_ran_out:
            return np.ones(len(self._pool.configs))
        products = np.array([HOST_MEMORY.product(config) for config in self._pool.configs])
        ran = max((HOST_MEMORY.product(one.config) for one in self._observed.measured.values()), default=0.0)
        ends = min(HOST_MEMORY.product(config) for config in self._observed.host_ran_out)
        fits = max(HOST_FITS / len(self._observed.host_ran_out), LEAST_HOST_FITS)
        return np.where(products >= max(ends, 1.01 * ran), fits, 1.0)

    @cached_property
    def slow(self) -> Floats:
        """The probability that a start takes too long."""
        start_s = self._growth(START_S, error=0.1, choices=START_CHOICES, grown=GROWN_S)
        if start_s is None:
            return np.zeros(len(self._pool.configs))
        means, deviations = start_s.logarithms(self._pool.configs)
        return 1.0 - below(math.log(self._limits.longest_start_s), means, deviations)

    @cached_property
    def _failing(self) -> Failing:
        levels = self._pool.levels
        ran = levels.codes(one.config for one in self._observed.measured.values())
        return Failing(levels, ran, levels.codes(self._observed.failed))

    def seconds(self, price: Price) -> Floats:
        """Return the expected seconds of a probe of each config now.

        A config that ends an open session also costs another start, because the search will return to that session.
        """
        starts = np.array([price(config) for config in self._pool.configs])
        start_s = self._start_s[0] if self._start_s else np.full(len(starts), USUAL_START_S)
        run_s = self._run_s[0] if self._run_s else USUAL_RUN_S
        back_s = start_s[starts == 0.0].mean() if not starts.all() else 0.0
        return (starts * (start_s + back_s) + run_s) * (1.0 - self.slow) + self._limits.longest_start_s * self.slow

    def series_s(self, price: Price, places: Codes, repeats: int) -> float:
        """Return the expected seconds of a series of probes: the runs, and the starts of the sessions they need.

        Configs of one rung share a session if the newest probe had one. Without sessions each probe has a start.
        """
        start_s = self._start_s[0] if self._start_s else np.full(len(self._pool.configs), USUAL_START_S)
        run_s = self._run_s[0] if self._run_s else np.full(len(self._pool.configs), USUAL_RUN_S)
        starts: dict[object, float] = {}
        for place in places:
            if price(self._pool.configs[place]) > 0.0:
                session = self._pool.heights[place] if self._observed.warm else place
                starts[session] = max(starts.get(session, 0.0), float(start_s[place]))
        return sum(starts.values()) * (1 if self._observed.warm else repeats) + repeats * float(run_s[places].sum())

    @cached_property
    def _start_s(self) -> Expected | None:
        return self._expected(START_S, error=0.1, choices=START_CHOICES)

    @cached_property
    def _run_s(self) -> Expected | None:
        return self._expected(RUN_S, error=0.2, choices=RUN_CHOICES)

    def _expected(self, name: str, *, error: float, choices: float) -> Expected | None:
        """Predict some seconds for each config from the measured seconds: see `Growth`."""
        growth = self._growth(name, error=error, choices=choices, grown=GROWN_S)
        return growth and growth.expect(self._pool.configs)

    def _growth(self, name: str, *, over: Sequence[Config] = (), **settings: Any) -> Growth | None:
        known = self._observed.known_amounts(name, self._pool.space)
        return inherited(self._pool.space, known, over=over, **settings)
