"""Predicts the memory and the seconds that a probe of each config takes, and whether the config will run."""

from functools import cached_property

import numpy as np

from tuner.kept.trial import MEMORY_SHARE, RUN_S, START_S
from tuner.search.arrays import Floats
from tuner.search.choosing import Price
from tuner.search.gain.levels import Codes
from tuner.search.gain.pool import Pool
from tuner.search.gain.worth import below
from tuner.search.growth import GROWN, inherited
from tuner.search.observed import Observed
from tuner.study.spec import ProbeSpec

USUAL_START_S, USUAL_RUN_S = 60.0, 20.0
"""The seconds of a start and of a run that are expected before the first measurement."""
GROWN_S = 0.25
"""The share of the first measured seconds that is expected to come from the environments.

Half-way up the ladder, most seconds do not depend on the number of environments. On two H200s a quarter of the 17 s at
1,024 environments does.
"""
LEAST = 0.1
"""An expected amount is at least this share of the smallest measured one, because a straight line may fall below 0."""

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
        fits = below(1.0 - self._limits.headroom_pct / 100.0, *self.memory) if self.memory else 1.0
        return fits * (1.0 - self.slow)

    @cached_property
    def memory(self) -> Expected | None:
        """The share of a device's memory in use; None until one has been measured."""
        return self._expected(MEMORY_SHARE, error=0.03, variants=0.1, grown=GROWN)

    @cached_property
    def slow(self) -> Floats:
        """The probability that a start takes too long."""
        if self._start_s is None:
            return np.zeros(len(self._pool.configs))
        return 1.0 - below(self._limits.longest_start_s, *self._start_s)

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
        return self._expected(START_S, error=0.1, variants=0.0, grown=GROWN_S)

    @cached_property
    def _run_s(self) -> Expected | None:
        return self._expected(RUN_S, error=0.2, variants=0.5, grown=GROWN_S)

    def _expected(self, name: str, *, error: float, variants: float, grown: float) -> Expected | None:
        """Predict an amount for each config from the measured amounts: see `Growth`."""
        known = self._observed.known_amounts(name, self._pool.space)
        growth = inherited(self._pool.space, known, error=error, variants=variants, grown=grown)
        if growth is None:
            return None
        mean, deviation = growth.expect(self._pool.configs)
        return np.maximum(mean, LEAST * min(amount for _, amounts in known for amount in amounts)), deviation
