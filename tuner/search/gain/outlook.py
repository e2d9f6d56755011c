"""What a search may still gain, where, and at what price."""

from functools import cached_property

import numpy as np

from tuner.search.arrays import Floats
from tuner.search.choosing import Price
from tuner.search.gain.costs import Costs
from tuner.search.gain.pool import Pool
from tuner.search.gain.readings import Readings, readings
from tuner.search.gain.surrogate import Surrogate
from tuner.search.gain.worth import below, certainty, worth
from tuner.search.observed import Observed
from tuner.study.space import Config, config_digest
from tuner.study.spec import ProbeSpec

WITHIN = 0.01
"""Configs whose values differ by no more than this share are equally good."""
TRIFLE = 1e-5
"""What counts as no gain, as a share of the best."""
LIKELY = 0.5
"""Probability of fitting into memory and time from which on a neighbour of the best is looked at before the end."""
UNLIKELY = 0.1
"""Below this probability a config counts as one that does not fit, once another has run: a launch that fails takes as
long as several probes in a session, and tells next to nothing."""
BEGIN = 0.5
"""Where on the ladder the first probe is made."""
UP_FROM = 0.6
"""Where on the ladder the first config stands at most to go up."""
SAFE = 0.9
"""Probability of fitting into memory and time with which it does."""

_RIVALS, _DRAWS, _SEED = 60, 1024, 0


class Outlook:
    """What is expected of each config of a pool after what has been observed."""

    def __init__(self, pool: Pool, observed: Observed, limits: ProbeSpec, certainty: float) -> None:
        """`certainty`: probability with which the best is to be as good as any other before a search ends."""
        self._pool = pool
        self._wanted = certainty
        self._observed = observed
        self._costs = Costs(pool, observed, limits)
        self._seen = pool.places(observed.seen)
        self._rivals = [place for place, one in zip(self._seen, observed.seen.values(), strict=True) if one.eligible]
        closed = set(pool.places(observed.closed)) | set(self._seen) - set(self._rivals)
        self._open = np.array(
            [place not in closed and observed.walls.beyond(config) is None for place, config in enumerate(pool.configs)]
        )

    @property
    def best(self) -> int | None:
        """The eligible config that is believed to be the best."""
        return max(self._rivals, key=lambda place: self._mean[place], default=None)

    def ended(self) -> str | None:
        """Say why nothing is left to gain; None where something is."""
        return None if self._pending else self._decided

    def is_as_good(self, config: Config) -> bool:
        """Tell whether a config that has run is surely as good as any other."""
        (place,) = self._pool.places([config_digest(config)])
        return self._certainty(place) >= self._wanted

    def next(self, price: Price) -> Config | None:
        """Choose the config that is expected to gain most for each second; None where nothing may be probed."""
        if not self._open.any():
            return None
        if not self._seen:
            return self._pool.configs[self._first()]
        if (higher := self._upward()) is not None:
            return self._pool.configs[higher]
        seconds = self._costs.seconds(price)
        if self._decided and self._pending:
            return self._pool.configs[min(self._pending, key=lambda place: seconds[place])]
        if self.best is not None and self._trifling(self._gain, self.best):
            return self._pool.configs[self._doubtful(self.best)]
        return self._pool.configs[int(np.where(self._open, self._gain / seconds, -1.0).argmax())]

    @cached_property
    def _decided(self) -> str | None:
        if not self._open.any():
            return "every config probed"
        if self.best is None:
            return None
        if self._certainty(self.best) >= self._wanted:
            return f"{100 * self._wanted:g}% sure that no config is {WITHIN:.0%} better than the best"
        if self._trifling(self._worth(0.0), self.best):
            return "to know any config exactly would gain next to nothing"
        return None

    def _first(self) -> int:
        """Begin in the middle of the ladder; after a failure half-way down from there."""
        heights, failed = self._pool.heights, self._pool.places(self._observed.closed)
        height = min([BEGIN, *(heights[place] / 2.0 for place in failed)])
        return int(min(np.flatnonzero(self._open), key=lambda place: abs(heights[place] - height)))

    def _upward(self) -> int | None:
        """Go up the ladder as far as is safe, while no more than one config has been seen, on few and low rungs.

        One config on two rungs far apart shows how value, memory and seconds grow, and the upper one is where most are
        best. None where no rung above is safe.
        """
        heights, codes = self._pool.heights, self._pool.codes
        others = [at for at in range(codes.shape[1]) if at != self._pool.levels.ladder]
        highest = max(self._seen, key=lambda at: heights[at])
        if not self._rivals or self._observed.closed or heights[highest] > UP_FROM:
            return None
        if len(np.unique(codes[self._seen][:, others], axis=0)) > 1:
            return None
        above = np.flatnonzero(self._open & (self._runs >= SAFE) & (heights > heights[highest]))
        return max(above.tolist(), key=lambda at: (heights[at], (codes[at] == codes[highest]).sum()), default=None)

    def _doubtful(self, best: int) -> int:
        """Choose what tells the best from its strongest challenger: the one of the two that is known worse.

        One reading that gains nothing may be the first of several that tell (Frazier and Powell 2010), and what is
        asked for is certainty: LUCB of Kalyanakrishnan et al. (2012).
        """
        challenger = int(np.where(self._open, self._threat(best), -1.0).argmax())
        return max((place for place in (challenger, best) if self._open[place]), key=lambda at: self._beliefs[1][at])

    @cached_property
    def _pending(self) -> list[int]:
        """The neighbours of the best: to be looked at before the end, however little is expected of them."""
        if self.best is None:
            return []
        return [
            place
            for place in self._pool.neighbours(self.best)
            if self._open[place] and place not in self._seen and self._runs[place] > LIKELY
        ]

    @cached_property
    def _surrogate(self) -> Surrogate:
        return Surrogate(self._pool.levels, self._readings)

    @cached_property
    def _readings(self) -> Readings:
        return readings(self._observed, self._pool.levels)

    @cached_property
    def _beliefs(self) -> tuple[Floats, Floats]:
        return self._surrogate.believe(self._pool.codes)

    @property
    def _mean(self) -> Floats:
        return self._beliefs[0]

    @cached_property
    def _gain(self) -> Floats:
        return self._worth(self._readings.error)

    def _worth(self, error: float) -> Floats:
        """Give what one reading of each config that is off by `error` is expected to gain."""
        return np.where(self._open, worth(*self._beliefs, error, self._rivals) * self._runs, 0.0)

    def _trifling(self, gain: Floats, best: int) -> bool:
        return bool(gain.max() < TRIFLE * abs(self._mean[best]))

    def _threat(self, best: int) -> Floats:
        """Give the probability that each config works and is better than the best, by more than what counts."""
        mean, deviation = self._beliefs
        threat = self._runs * (1.0 - below(mean[best] + WITHIN * abs(mean[best]), mean, deviation))
        threat[best] = 0.0
        return np.where(self._open, threat, 0.0)

    def _certainty(self, best: int) -> float:
        """Give the probability that the best is as good as any other that works."""
        threat = self._threat(best)
        promising = np.argsort(-threat)[:_RIVALS]
        places = np.union1d(promising[threat[promising] > 0.0], [best])
        chance = np.random.default_rng(_SEED).random((len(places), _DRAWS))
        return certainty(
            self._surrogate.imagine(self._pool.codes[places], _DRAWS, _SEED + 1),
            chance < self._runs[places][:, None],
            int(np.searchsorted(places, best)),
            WITHIN,
        )

    @cached_property
    def _runs(self) -> Floats:
        """Give the probability that each config fits into memory and time; 1 where it has run."""
        runs = self._costs.runs.copy()
        if self._rivals:
            runs[runs < UNLIKELY] = 0.0
        runs[self._seen] = 1.0
        return runs
