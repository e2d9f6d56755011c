"""Predicts which config may still gain how much, and what it takes."""

import math
from functools import cached_property

import numpy as np

from tuner.search.choosing import Price
from tuner.search.gain import prospects
from tuner.search.gain.costs import Costs
from tuner.search.gain.pool import Codes, Pool, first, upward
from tuner.search.gain.readings import Readings, apart, in_logarithms, logarithmic, mean_readings, single_errors
from tuner.search.gain.surrogate import Mixture, Surrogate
from tuner.search.needs import Floats
from tuner.search.observed import Observed
from tuner.study import Config, ProbeSpec, config_digest, written

WITHIN = 0.01
"""Configs whose values differ by no more than this share are equally good."""
TRIFLE = 1e-5
"""A gain below this share of the best counts as no gain."""
ROUGH, UNSURE_UNTIL = 0.1, 60
"""Where its predictions are off by this share, the search promises nothing and measures at least so many configs."""
LEAST_BELIEVED, LEAST_BOUND = 0.3, 0.025
"""The bound is at least this share of what the model says, and at least this share of the best."""
CLAIMED = 0.8
"""The expected loss is believed by this power of the model's record, because a record of a few gains is too low.

All three were chosen on the tables to develop on, so that 95 of 100 bounds hold and that the mean loss is as expected
(`benchmarks/results/search.md`).
"""
BRIEF = 0.01
"""A probe that takes at most this share of the training is made where a rule of thumb asks for it."""
CHOICES, SEEN, SHOWN = 4, 2, 0.1
"""Each value of a parameter with at most so many is seen so often. To show one more is worth this share of the best."""
LIKELY = 0.5
"""A neighbour of the best is probed before the end if it fits into memory and time with more than this probability."""
UNLIKELY = 0.1
"""Once a config has run, configs that fit into memory and time with less than this probability are not launched."""
SAFE = 0.9
"""The second probe's rung must fit into memory and time with at least this probability."""
PRIOR_FREEDOM = 1.0
"""What the model assumes of its sizes beforehand counts as a measurement: `SIZE_SPREAD` is as large as after one."""
FAR_ABOVE, FEW, ENOUGH = 2.5, 4, 4
"""A best is surprising that is so many standard deviations above what at least so many configs foretell.

It is measured again until it has so many measurements.
"""

_ALL_PROBED = "every config has been probed"
_RIVALS = 60


class Outlook:
    """What each config of a pool is expected to gain and to take, after the trials observed so far."""

    def __init__(
        self, pool: Pool, observed: Observed, limits: ProbeSpec, goal: prospects.Goal, elder: Surrogate | None = None
    ) -> None:
        """`limits`: see `Costs`. `elder`: what the measurements of similar cases say."""
        self._pool, self._observed, self._goal, self._elder = pool, observed, goal, elder
        self._costs = Costs(pool, observed, limits)
        self._measured = list(observed.measured.values())
        self._in_logarithms = goal.ceiling == math.inf and elder is None and logarithmic(self._measured)
        if self._in_logarithms:
            self._measured = list(map(in_logarithms, self._measured))
        self._seen = pool.places(observed.measured)
        measured = zip(self._seen, observed.measured.values(), strict=True)
        self._rivals = [place for place, one in measured if one.eligible]
        closed = set(pool.places(observed.closed)) | set(self._seen) - set(self._rivals)
        ends = (observed.frontier.beyond(config) for config in pool.configs)
        self._open = np.array([place not in closed and end is None for place, end in enumerate(ends)])

    @property
    def best(self) -> int | None:
        """The place of the eligible config with the highest expected value."""
        return max(self._rivals, key=lambda place: self._mean[place], default=None)

    def ended(self, price: Price) -> str | None:
        """Return why nothing is left to gain, and which choices never ran; None where something is left."""
        if not self._open.any():
            return self._with_causes(_ALL_PROBED)
        if self.best is None or (self._brief(price) and (self._doubted or self._untried or self._thin is not None)):
            return None
        if self._off > ROUGH and len(self._seen) < UNSURE_UNTIL:
            return None
        left = self._prospect(price)
        if left.pays:
            return None
        if self._off > ROUGH:
            of_all = f"{len(self._seen)} of {len(self._pool.configs):,} configs"
            return self._with_causes(f"not sure: {of_all}, predictions off by {100 * self._off:.2g}%")
        return self._with_causes(self._goal.in_words(left, *self._lost(price)))

    def _lost(self, price: Price) -> tuple[float, float]:
        """Return the expected loss and a bound on it, as far as the model's record lets it be believed."""
        lost, bound = prospects.shortfall(self._contest(price)[1])
        believed = bound * min(1.0, max(LEAST_BELIEVED, math.sqrt(self._trust)))
        least = LEAST_BOUND if len(self._seen) < len(self._pool.configs) else 0.0
        expected = self._trust**CLAIMED * lost
        return expected, max(believed, least, expected)

    def _brief(self, price: Price) -> bool:
        """Whether a probe takes so little of the training that the search need not ask whether it pays."""
        return self.takes_s(self.best or 0, price) <= BRIEF * self._goal.training_s

    def _with_causes(self, reason: str) -> str:
        failed = (f"every config with {name}={written(value)} failed" for name, value in self._costs.causes)
        return "; ".join([reason, *failed])

    @cached_property
    def _off(self) -> float:
        """How far off predictions are, as a share of the best: the median, and no less than measurements scatter."""
        off = np.abs(self._alone.foretold()[0] - self._alone.known.values)
        return max(float(np.median(off)), self._alone.chance) / self._whole

    @property
    def left(self) -> float | None:
        """The probes until the search ends, as far as its doubts tell now; None while no config has run."""
        return None if self.best is None else prospects.probes_left(self._threat)

    def is_as_good(self, config: Config, price: Price) -> bool:
        """Check whether the best gains less in training than one more measurement of it takes."""
        (place,) = self._pool.places([config_digest(config)])
        if self.best is None:
            return False
        behind = (self._mean[self.best] - self._mean[place]) / self._whole
        return bool(behind * self._goal.training_s <= self.takes_s(self.best, price))

    def takes_s(self, place: int, price: Price) -> float:
        """Return the expected seconds of a probe of a config now."""
        return self._costs.series_s(price, np.array([place]), repeats=1)

    def next(self, price: Price) -> int | None:
        """Choose the place of the largest expected gain per second; None where no config may be probed."""
        return self._next(price) if self._open.any() else None

    def _next(self, price: Price) -> int:
        if not self._seen:
            return self._first()
        gain = np.where(self._open, self._gain / self._costs.seconds(price), -1.0)
        most = int(gain.argmax())
        if (higher := self._upward()) is not None or self.best is None:
            return most if higher is None else higher
        if self._doubted and self._surprising:
            return self.best
        if self._untried:
            return min(self._untried, key=lambda place: (self._flat[at := self._apart(place)], at, -gain[place]))
        if (self._thin is not None or self._doubted) and not self._prospect(price).pays:
            return self.best if self._thin is None else self._thin
        return self._doubtful(self.best) if self._trifling else most

    @cached_property
    def _untried(self) -> list[int]:
        """The neighbours of the best with a value that no measured config has.

        A speed may rise by any factor, so each such value is measured once, whatever the model expects. The values of
        a study's first parameter come first, unless a change of this parameter has changed little. The next rungs of
        the ladder are measured with the best itself, because other choices move the end of memory.
        """
        if not self._in_logarithms or self.best is None:
            return []
        codes, ladder = self._pool.codes, self._pool.levels.ladder
        known = codes[self._seen]

        def new(place: int) -> bool:
            at = self._apart(place)
            return at == ladder or codes[place, at] not in known[:, at]

        near = (place for place in self._pool.neighbours(self.best) if place not in self._seen)
        return [place for place in near if self._open[place] and self._runs[place] > LIKELY and new(place)]

    @cached_property
    def _flat(self) -> list[bool]:
        """Of each parameter, whether the best has changed little where this parameter alone changed.

        It changed little where the difference is below `WITHIN`, or below its standard error.
        """
        codes, best = self._pool.codes, self.best or 0
        changed = codes[self._seen] != codes[best]
        behind = self._mean[best] - self._mean[self._seen]
        close = behind < np.maximum(WITHIN, np.hypot(self._errors[self._seen], self._errors[best]))
        alone = close & (changed.sum(axis=1) == 1)
        return [bool((alone & changed[:, at]).any()) for at in range(codes.shape[1])]

    def _apart(self, neighbour: int) -> int:
        """Return which parameter of a neighbour differs from the best's."""
        return int(np.flatnonzero(self._pool.codes[neighbour] != self._pool.codes[self.best])[0])

    @cached_property
    def _thin(self) -> int | None:
        """The most promising config with a choice that a single probe speaks for or against; None where there is none.

        One measurement may be far off, and one crash may have had another cause. So each choice is seen in two configs.
        A config that shows several such choices is preferred.
        """
        if not self._in_logarithms or self.best is None:
            return None
        codes, levels = self._pool.codes, self._pool.levels
        probed = np.concatenate([codes[self._seen], levels.codes(self._observed.failed)])
        thin = np.zeros(len(codes))
        for at, parameter in enumerate(self._pool.space.parameters):
            for value in range(len(parameter.values)) if len(parameter.values) <= CHOICES else ():
                if (probed[:, at] == value).sum() < SEEN:
                    thin += codes[:, at] == value
        possible = self._open & (thin > 0) & (self._costs.fits * (1.0 - self._costs.slow) > LIKELY)
        possible[self._seen] = False
        mean, deviation = self._beliefs
        promise = mean + deviation + np.log(np.maximum(self._costs.runs, TRIFLE)) + SHOWN * thin
        return int(np.where(possible, promise, -np.inf).argmax()) if possible.any() else None

    def _prospect(self, price: Price) -> prospects.Prospect:
        """Return what the series of probes promises that pays best, once there is a best."""
        places, rivals = self._contest(price)
        return prospects.most_rewarding(
            rivals,
            np.searchsorted(places, self._promising(price)),
            self._goal.training_s,
            lambda probes: self._costs.series_s(price, places[probes.members], probes.repeats),
            self._trust,
        )

    @cached_property
    def _trust(self) -> float:
        """How far the model's expected gains are believed: see `prospects.trust`."""
        codes = self._alone.known.codes
        _, first = np.unique(codes, axis=0, return_index=True)
        order = np.sort(first)
        means, deviations = (each[order] for each in self._alone.foretold())
        truths = self._surrogate.believe(codes[order])[0]
        best = np.maximum.accumulate(truths)
        expected = prospects.expected_improvement(means[1:] - best[:-1], deviations[1:])
        return prospects.trust(expected, np.diff(best), prospects.LEAST * self._whole)

    def _contest(self, price: Price) -> tuple[Codes, prospects.Rivals]:
        """Return the places of the configs that promise most and of the best ones, and what is known of them."""
        best = np.array(self._rivals)
        places = np.union1d(self._promising(price), best[np.argsort(-self._mean[best])[:_RIVALS]])
        mean, covariance = self._surrogate.together(self._pool.codes[places])
        return places, prospects.Rivals(
            mean=mean,
            covariance=covariance,
            runs=self._runs[places],
            known=np.isin(places, self._rivals),
            errors=self._errors[places],
            freedom=self._freedom,
            ceiling=self._goal.ceiling,
            whole=self._whole,
        )

    @property
    def _doubted(self) -> bool:
        """Whether the best must be measured again before the search may end.

        So it is after one measurement where no session serves the probes, because nothing else measures the best again.
        So it is also while its measurements are far above what the others foretell, until there are enough.
        """
        if self.best is None or not self._open[self.best]:
            return False
        times = len(self._measured[self._seen.index(self.best)].values)
        return (times == 1 and not self._observed.warm) or (times < ENOUGH and self._surprising)

    @property
    def _surprising(self) -> bool:
        """Whether the mean measurement of the best is far above what all others foretell."""
        if self.best is None or len(self._seen) < FEW:
            return False
        return self._alone.surprise(self._pool.codes[self.best]) > FAR_ABOVE

    @property
    def _freedom(self) -> float:
        return PRIOR_FREEDOM + self._surrogate.measured

    def _promising(self, price: Price) -> Codes:
        """Return the places of the configs of which exact knowledge would gain most per second, the best one first."""
        gain = self._expected_gain(0.0)
        order = np.argsort(-gain / self._costs.seconds(price))[:_RIVALS]
        return order[gain[order] > 0.0]

    def _first(self) -> int:
        failed = self._pool.levels.codes(self._observed.failed)
        return first(self._pool, self._open, self._pool.places(self._observed.closed), failed)

    def _upward(self) -> int | None:
        if not self._rivals or self._observed.closed:
            return None
        return upward(self._pool, self._seen, self._open & (self._runs >= SAFE))

    def _doubtful(self, best: int) -> int:
        """Choose the best config or its strongest challenger, whichever is less certain.

        A single measurement may gain nothing, although several would (Frazier and Powell 2010). The search needs
        certainty about the best, as the LUCB rule does (Kalyanakrishnan et al. 2012).
        """
        challenger = int(np.where(self._open, self._threat, -1.0).argmax())
        return max((place for place in (challenger, best) if self._open[place]), key=lambda at: self._beliefs[1][at])

    @cached_property
    def _alone(self) -> Surrogate:
        """What the measurements of this case alone say."""
        return Surrogate(self._pool.levels, self._readings)

    @cached_property
    def _surrogate(self) -> Surrogate | Mixture:
        if self._elder is None:
            return self._alone
        return Mixture(self._alone, Surrogate(self._pool.levels, self._readings, self._elder))

    @cached_property
    def _readings(self) -> Readings:
        devices, levels = self._observed.newest_devices, self._pool.levels
        if self._in_logarithms:
            return mean_readings(apart(self._measured), devices, levels, logs=True)
        return mean_readings(self._measured, devices, levels)

    @cached_property
    def _beliefs(self) -> tuple[Floats, Floats]:
        return self._surrogate.believe(self._pool.codes)

    @property
    def _whole(self) -> float:
        """What a share of the best is a share of."""
        return 1.0 if self._in_logarithms else max(abs(float(self._mean[self.best or 0])), 1e-9)

    @property
    def _mean(self) -> Floats:
        return self._beliefs[0]

    @cached_property
    def _gain(self) -> Floats:
        return self._expected_gain(self._errors)

    @cached_property
    def _errors(self) -> Floats:
        """The standard error of one more measurement of each config."""
        errors = np.full(len(self._pool.configs), self._readings.error)
        errors[self._seen] = single_errors(self._measured)
        return np.hypot(errors, self._alone.chance)

    def _expected_gain(self, errors: Floats | float) -> Floats:
        """Return the expected gain of one measurement of each config with the standard errors `errors`."""
        gain = prospects.knowledge_gradient(*self._beliefs, errors, self._rivals, self._goal.ceiling)
        return np.where(self._open, gain * self._runs, 0.0)

    @property
    def _trifling(self) -> bool:
        """Whether no single probe is expected to gain anything."""
        return bool(self._gain.max() < TRIFLE * self._whole)

    @property
    def _threat(self) -> Floats:
        """The probability that each config works and is better than the best by more than `WITHIN`."""
        (mean, deviation), best = self._beliefs, self.best or 0
        threat = self._runs * (1.0 - prospects.below(mean[best] + WITHIN * self._whole, mean, deviation))
        threat[best] = 0.0
        return np.where(self._open, threat, 0.0)

    @cached_property
    def _runs(self) -> Floats:
        """The probability that each config fits into memory and time; 1 where the config has run."""
        runs = self._costs.runs.copy()
        if self._rivals:
            runs[runs < UNLIKELY] = 0.0
        runs[self._seen] = 1.0
        return runs
