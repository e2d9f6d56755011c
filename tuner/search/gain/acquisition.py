"""Predicts which config may still gain how much, and what it takes."""

import math
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tuner.search.choosing import Price
from tuner.search.gain import expected_gain
from tuner.search.gain.costs import Costs
from tuner.search.gain.expected_gain import WITHIN
from tuner.search.gain.pool import Codes, Pool, beyond_ends, ends_so_far, first, largest_of, upward, within_ends
from tuner.search.gain.readings import Readings, have_logarithms, in_logarithms, mean_readings, single_errors, singles
from tuner.search.gain.surrogate import Mixture, Surrogate
from tuner.search.observed import Observed
from tuner.search.resource_model import Floats, Prediction
from tuner.study import Config, ProbeSpec, config_digest, value_text

TRIFLE = 1e-5
"""A gain below this share of the best counts as no gain."""
LEAST_BOUND = 0.025
"""The smallest share of the best that a search says that it may have missed, unless it has measured all."""
LIKELY = 0.7
"""A neighbour of the best is probed before the end if it fits into memory and time with more than this probability."""
ENOUGH = 60
"""The number of measured configs after which a search ends although its predictions are rough."""
STEEP = math.log(1.3)
"""A step that gains more than this share is steep: what lies beyond is probed at once."""
MOST_REPEATS = 6
"""The most second readings of configs that a rule of thumb may ask for."""
_RIVALS = 60


class Compared(NamedTuple):
    """The configs of a pool that promise most and the best ones so far: a row per config."""

    places: Codes
    """The places of the configs in the pool."""
    promising: Codes
    """The rows of those that promise a gain, the most promising one first."""
    rivals: expected_gain.Rivals
    """What is known of all of them."""


class Acquisition:
    """What each config of a pool is expected to gain and to take, after the trials observed so far."""

    def __init__(
        self,
        pool: Pool,
        observed: Observed,
        limits: ProbeSpec,
        goal: expected_gain.Goal,
        source: Surrogate | None = None,
    ) -> None:
        """`limits`: see `Costs`. `source`: what the measurements of similar cases say."""
        self._pool, self._observed, self._goal, self._source = pool, observed, goal, source
        self._costs = Costs(pool, observed, limits)
        self._prospects: dict[Price, expected_gain.Prospect] = {}
        self._measured = list(observed.measured.values())
        self._in_logarithms = goal.ceiling == math.inf and source is None and have_logarithms(self._measured)
        if self._in_logarithms:
            self._measured = list(map(in_logarithms, self._measured))
        self._measured_places = pool.places(observed.measured)
        measured = zip(self._measured_places, observed.measured.values(), strict=True)
        self._rivals = [place for place, entry in measured if entry.eligible]
        closed = set(pool.places(observed.closed)) | set(self._measured_places) - set(self._rivals)
        self._possible = np.ones(len(pool.configs), dtype=bool)  # to probe, if it fits into the ranges so far
        self._possible[list(closed)] = False
        for values in observed.frontier.by_value(pool.space):
            beyond = [np.array(needs)[pool.codes[:, column]] for column, needs in enumerate(values)]
            self._possible &= ~np.logical_and.reduce(beyond)
        self._ends = ends_so_far(pool, closed | set(self._measured_places))
        self._open = self._possible & within_ends(pool, self._ends)

    @cached_property
    def best(self) -> int | None:
        """The place of the eligible config with the highest expected value."""
        return max(self._rivals, key=lambda place: self._mean[place], default=None)

    @property
    def best_config(self) -> Config | None:
        """The config of `best`."""
        return None if self.best is None else self._pool.configs[self.best]

    def ended(self, price: Price) -> str | None:
        """Return why nothing is left to gain, and which choices never ran; None where something is left."""
        reason = self._reason_to_end(price)
        return None if reason is None or self._next_in_range is not None else reason

    def _reason_to_end(self, price: Price) -> str | None:
        """Return why nothing is left to gain within the values so far; None where something is left.

        Where predictions are rough, it promises nothing, and ends after `ENOUGH` configs.
        """
        if not self._open.any():
            return self._with_causes("every config has been probed")
        is_rough, few = self._is_rough, len(self._measured_places) < ENOUGH
        if self.best is None or (is_rough and few) or (self._is_brief(price) and self._must_go_on):
            return None
        prospect = self._prospect(price)
        if prospect.pays:
            return None
        shortfall = self._believed_loss(price)
        if not is_rough and not (self._newest_error > shortfall.bound and self._is_new.any()):
            return self._with_causes(self._goal.in_words(prospect, shortfall))
        if few:
            return None
        off_pct, count = 100 * max(self._usual_error, self._newest_error), len(self._measured_places)
        return self._with_causes(
            f"not sure: {count} of {len(self._pool.configs):,} configs, predictions off by {off_pct:.2g}%"
        )

    def _believed_loss(self, price: Price) -> expected_gain.Shortfall:
        """Return the expected loss and a bound on it, as far as the model's record lets it be believed.

        The bound is at least 0.3 of what the model says, and at least `LEAST_BOUND` of the best. The loss is believed
        by a power of the record, because a record of a few gains is too low. All three numbers were chosen on scripts,
        ladders and kernels to develop on, so that 95 of 100 bounds hold and that the mean loss is as expected. On
        launches of large models fewer hold (`benchmarks/results/search.md`).
        """
        lost, bound = expected_gain.shortfall(self._compared(price, self._chances).rivals)
        believed = bound * min(1.0, max(0.3, math.sqrt(self._realised_ratio)))
        least = LEAST_BOUND if len(self._measured_places) < len(self._pool.configs) else 0.0
        expected = self._realised_ratio**0.8 * lost
        return expected_gain.Shortfall(expected, max(believed, least, expected))

    def _is_brief(self, price: Price) -> bool:
        """Return whether a probe takes so little of the training that the search need not ask whether it pays."""
        return self.takes_s(self.best or 0, price) <= 0.01 * self._goal.training_s

    def _with_causes(self, reason: str) -> str:
        """Return a reason to end, with the limits within which it holds, and the choices that never ran."""
        ends = largest_of(self._pool, self._ends, self.best_config or {})
        limits = [f"within these values, of which {' and '.join(ends)} is the largest"] if ends else []
        if self._pool.is_part:
            limits.append(f"among {len(self._pool.configs):,} configs drawn of a larger space")
        failed = (f"every config with {name}={value_text(value)} failed" for name, value in self._costs.causes)
        return "; ".join([reason, *limits, *failed])

    @cached_property
    def _usual_error(self) -> float:
        """How far off predictions are, as a share of the best: the median, and no less than measurements scatter."""
        errors = np.abs(self._alone.left_out_predictions().mean - self._alone.known.values)
        return max(float(np.median(errors)), self._alone.scatter) / self._scale

    @property
    def _is_rough(self) -> bool:
        """Whether predictions are off by more than a tenth of the best."""
        return bool(self._rivals) and self._usual_error > 0.1

    @property
    def _launchable(self) -> int:
        """The number of configs that may be launched and have not been measured."""
        return int(np.count_nonzero(self._is_unmeasured & (self._runs > 0.0)))

    @property
    def _must_go_on(self) -> bool:
        """Whether a rule of thumb asks for another probe: of the best, of a value that is new, or of a rare one."""
        must_see = bool(self._untried) or self._rarely_tried is not None
        return must_see or self._needs_repeat or self._doubted is not None

    @property
    def _repeats(self) -> int:
        """The number of readings of configs that had been measured before."""
        return sum(len(entry.values) - 1 for entry in self._measured)

    @property
    def _to_repeat(self) -> int | None:
        """The config to measure again once no series of probes pays; None where there is none.

        A best that must be measured again comes first. Then comes the config that tells most about which is the best,
        unless the newest predictions were off, and more than a fifth of all readings already are second ones.
        """
        if self._needs_repeat:
            return self.best
        # a fifth of all readings are second ones when there is one for every four configs
        if self._is_off and self._repeats > len(self._measured_places) // 4:
            return None
        return self._doubted

    @cached_property
    def _doubted(self) -> int | None:
        """The best or its strongest rival among the measured configs, whichever tells more; None where none is close.

        A rival is close that is better by more than `WITHIN` with the probability 0.2. None is measured again where
        the usual standard error of a reading is below 2 % of the best, nor after six second readings: where configs are
        alike, no number tells which is the best.

        Of two that may be the best, it is the one whose reading narrows the difference most (Russo, "Simple Bayesian
        Algorithms for Best-Arm Identification", 2020, calls this top-two sampling).
        """
        order = sorted((place for place in self._rivals if self._open[place]), key=lambda place: -self._mean[place])
        is_known = self._readings.error < 0.02 * self._scale or self._repeats >= MOST_REPEATS
        if self.best is None or len(order) < 2 or order[0] != self.best or is_known:
            return None
        places = np.array(order[:_RIVALS])
        mean, covariance = self._surrogate.joint_prediction(self._pool.codes[places])
        variance = covariance.diagonal()
        apart = np.sqrt(np.maximum(variance[0] + variance[1:] - 2.0 * covariance[0, 1:], 1e-12))
        better = 1.0 - expected_gain.below(mean[0] - mean[1:] + WITHIN * self._scale, np.zeros(len(apart)), apart)
        if better.sum() <= 0.2:
            return None
        rival = 1 + int(better.argmax())
        tells = [
            (variance[at] - covariance[0, rival]) ** 2 / (variance[at] + self._errors[places[at]] ** 2)
            for at in (0, rival)
        ]
        return int(places[0] if tells[0] >= tells[1] else places[rival])

    @cached_property
    def _is_unmeasured(self) -> NDArray[np.bool_]:
        """Whether each config may be probed and has not been measured."""
        unmeasured = self._open.copy()
        unmeasured[self._measured_places] = False
        return unmeasured

    @cached_property
    def _is_new(self) -> NDArray[np.bool_]:
        """Whether each config probably runs and has not been measured."""
        return self._is_unmeasured & (self._runs > LIKELY)

    @property
    def _is_off(self) -> bool:
        """Whether the newest predictions were off by more than any search promises, and a config is new."""
        return self._newest_error > LEAST_BOUND and bool(self._is_new.any())

    @cached_property
    def _newest_error(self) -> float:
        """How far off the predictions of the newest measurements are, beyond their errors, as a share of the best.

        It is the median over the newest ten, each predicted by all other measurements.
        """
        known = self._alone.known
        squares = np.square(self._alone.left_out_predictions().mean - known.values) - np.square(known.errors)
        return float(np.sqrt(max(np.median(squares[-10:]), 0.0))) / self._scale

    @property
    def left(self) -> float | None:
        """The probes until the search ends, as far as its predictions tell now; None while no config has run."""
        if self.best is None:
            return None
        left = expected_gain.probes_left(self._threat, self._unseen)
        return max(left, min(ENOUGH - len(self._measured_places), self._launchable)) if self._is_rough else left

    @property
    def _unseen(self) -> int:
        """The probes that would show each value of a parameter with at most four in two configs, as far as they fit."""
        if not self._in_logarithms:
            return 0
        codes = self._pool.codes[self._is_unmeasured & (self._costs.possible > LIKELY)]
        return sum(
            max(0, min(2 - len(ran) - len(failures), int(np.count_nonzero(codes[:, column] == value))))
            for column, value, ran, failures in self._few_values()
        )

    def is_as_good(self, config: Config, price: Price) -> bool:
        """Return whether the best gains less in training over a config than one more measurement of the best takes."""
        (place,) = self._pool.places([config_digest(config)])
        if self.best is None:
            return False
        behind = (self._mean[self.best] - self._mean[place]) / self._scale
        return bool(behind * self._goal.training_s <= self.takes_s(self.best, price))

    def takes_s(self, place: int, price: Price) -> float:
        """Return the expected seconds of a probe of a config now."""
        return self._costs.series_s(price, np.array([place]), repeats=1)

    def next(self, price: Price) -> int | None:
        """Choose the place of the largest expected gain per second; None where no config may be probed.

        A range grows once nothing is left to gain within it, before any config is measured again, and at once after a
        steep step to its end.
        """
        grown = self._next_in_range
        if grown is not None and (math.inf > self._lead(grown) > STEEP or self._reason_to_end(price) is not None):
            return grown
        place = self._next(price) if self._open.any() else None
        return place if grown is None or place not in self._measured_places else grown

    @cached_property
    def _next_in_range(self) -> int | None:
        """The best config with the next value of a range whose end leads it; None where no range can grow."""
        places = beyond_ends(self._pool, self._ends, self.best_config or {})
        possible = (place for place in places if self._possible[place] and self._costs.possible[place] > LIKELY)
        return next((place for place in possible if self._lead(place) > WITHIN), None)

    def _lead(self, neighbour: int) -> float:
        """Return by which share the best leads with its value of what a neighbour changes, all else alike.

        Its rivals are the configs that differ from it in this value alone, by their expected values. An eligible config
        has the other value: the lead is infinite where none has.
        """
        column, codes = self._column(neighbour), self._pool.codes
        alike = (np.delete(codes, column, axis=1) == np.delete(codes[self.best], column)).all(axis=1)
        tried = np.isin(codes[:, column], codes[self._rivals, column]) & (codes[:, column] != codes[self.best, column])
        return float(self._mean[self.best] - self._mean[alike & tried].max(initial=-np.inf)) / self._scale

    def _next(self, price: Price) -> int:
        """Choose the place of the next config within the values so far; at least one may be probed.

        It is the first that applies: the first configs of a search, the best again where its mean is surprising, a
        value that is new, what a rule of thumb asks for once no series of probes pays, and the largest expected gain
        per second.
        """
        if not self._measured_places:
            return self._first()
        gain = np.where(self._open, self._gain / self._costs.seconds(price), -1.0)
        most = int(gain.argmax())
        if (higher := self._upward()) is not None or self.best is None:
            return most if higher is None else higher
        if self._needs_repeat and self._is_surprising:
            return self.best
        if self._untried:
            columns = {place: self._column(place) for place in self._untried}
            neighbour = min(columns, key=lambda place: (self._is_flat[columns[place]], columns[place], -gain[place]))
            return max(self._with_beyond(neighbour), key=lambda place: gain[place])
        by_rule = self._to_repeat if self._rarely_tried is None else self._rarely_tried
        if by_rule is not None and not self._prospect(price).pays:
            return by_rule
        is_trifling = self._gain.max() < TRIFLE * self._scale
        nothing_gains = is_trifling or (self._is_off and not self._prospect(price).pays)
        return self._where_nothing_gains(self.best) if nothing_gains else most

    def _where_nothing_gains(self, best: int) -> int:
        """Choose a new config that may be good where predictions were off, else what is less certain."""
        if not self._is_off:
            return self._less_certain(best)
        mean, deviation = self._predictions
        return int(np.where(self._is_new, mean + deviation, -np.inf).argmax())

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
        known = codes[self._measured_places]

        def new(place: int) -> bool:
            """Return whether a neighbour has a value that is new, or another rung."""
            column = self._column(place)
            return column == ladder or codes[place, column] not in known[:, column]

        neighbours = (place for place in self._pool.neighbours(self.best) if place not in self._measured_places)
        return [place for place in neighbours if self._open[place] and self._runs[place] > LIKELY and new(place)]

    def _with_beyond(self, neighbour: int) -> list[int]:
        """Return a neighbour of the best and, after a step by the factor 1.3, what lies beyond and may run.

        Where each doubling of a batch has nearly doubled the speed, the next probe may so leave doublings out.
        """
        codes, best, column = self._pool.codes, self.best or 0, self._column(neighbour)
        values = self._pool.space.parameters[column].values
        if any(isinstance(value, str) for value in values):
            return [neighbour]
        numbers = np.array([*values, np.nan], dtype=float)[codes[:, column]]
        ahead = np.sign(numbers[neighbour] - numbers[best]) * (numbers - numbers[best])
        alike = (np.delete(codes, column, axis=1) == np.delete(codes[best], column)).all(axis=1)
        behind = [place for place in self._measured_places if alike[place] and ahead[place] < 0.0]
        before = max(behind, key=lambda place: ahead[place], default=best)
        if self._mean[best] - self._mean[before] <= STEEP:
            return [neighbour]
        beyond = alike & (ahead > ahead[neighbour]) & self._is_new
        return [neighbour, *np.flatnonzero(beyond).tolist()]

    @cached_property
    def _is_flat(self) -> list[bool]:
        """Whether the value of the best has changed little where one parameter alone changed, for each parameter.

        It changed little where the difference is below `WITHIN`, or below its standard error.
        """
        codes, best = self._pool.codes, self.best or 0
        changed = codes[self._measured_places] != codes[best]
        behind = self._mean[best] - self._mean[self._measured_places]
        is_close = behind < np.maximum(WITHIN, np.hypot(self._errors[self._measured_places], self._errors[best]))
        by_one = is_close & (changed.sum(axis=1) == 1)
        return [bool((by_one & changed[:, column]).any()) for column in range(codes.shape[1])]

    def _column(self, neighbour: int) -> int:
        """Return the column of the parameter in which a neighbour of the best differs from it."""
        return int(np.flatnonzero(self._pool.codes[neighbour] != self._pool.codes[self.best])[0])

    @cached_property
    def _rarely_tried(self) -> int | None:
        """The most promising config with a choice that a single probe speaks for or against; None where there is none.

        One measurement may be far off, and one crash may have had another cause. So each value of a parameter with at
        most four is tried in two configs. To show one more is worth a tenth of the best. Where a value has only failed,
        and always beside the same other choices, they may be the cause: it is tried without them.
        """
        if not self._in_logarithms or self.best is None:
            return None
        codes, known = self._pool.codes, self._pool.codes[self._measured_places]
        rare = np.zeros(len(codes))  # how many rare choices each config has
        for column, value, ran, failures in self._few_values():
            if len(ran) + len(failures) < 2:
                rare += codes[:, column] == value
            elif not len(ran):
                shared = (failures == failures[0]).all(axis=0) & (known != failures[0]).any(axis=0)
                shared[column] = False
                differs = (codes[:, shared] != failures[0, shared]).all(axis=1) & shared.any()
                rare += (codes[:, column] == value) & differs
        possible = self._is_unmeasured & (rare > 0) & (self._costs.possible > LIKELY)
        mean, deviation = self._predictions
        promise = mean + deviation + np.log(np.maximum(self._costs.runs, TRIFLE)) + 0.1 * rare
        return int(np.where(possible, promise, -np.inf).argmax()) if possible.any() else None

    def _few_values(self) -> Iterator[tuple[int, int, Codes, Codes]]:
        """Yield each value of each parameter with at most four values.

        Each comes as the column of the parameter, the code of the value, the configs that ran with it and that failed.
        """
        known, failed = self._pool.codes[self._measured_places], self._pool.levels.codes(self._observed.failed)
        for column, parameter in enumerate(self._pool.space.parameters):
            count = len(parameter.values) - len(parameter.grown)
            for value in range(count) if count <= 4 else ():
                yield column, value, known[known[:, column] == value], failed[failed[:, column] == value]

    def _prospect(self, price: Price) -> expected_gain.Prospect:
        """Return the series of probes that pays best, with what it gains and takes. There must be a best config.

        Only configs that promise a gain are in a series; the best ones so far are their rivals.
        """
        if price not in self._prospects:
            places, promising, rivals = self._compared(price, self._runs)
            self._prospects[price] = expected_gain.most_rewarding(
                rivals,
                promising,
                self._goal.training_s,
                lambda probes: self._costs.series_s(price, places[probes.members], probes.repeats),
                self._realised_ratio,
            )
        return self._prospects[price]

    @cached_property
    def _realised_ratio(self) -> float:
        """How far the model's expected gains are believed: see `expected_gain.realised_ratio`."""
        codes = self._alone.known.codes
        _, first = np.unique(codes, axis=0, return_index=True)
        order = np.sort(first)
        means, deviations = (each[order] for each in self._alone.left_out_predictions())
        truths = self._surrogate.predict(codes[order]).mean
        best = np.maximum.accumulate(truths)
        expected = expected_gain.expected_improvement(means[1:] - best[:-1], deviations[1:])
        return expected_gain.realised_ratio(expected, np.diff(best), expected_gain.LEAST * self._scale)

    def _compared(self, price: Price, runs: Floats) -> Compared:
        """Return the configs that promise most and the best ones so far. There must be a best config.

        `runs`: the probability that each config of the pool runs.
        """
        best, promising = np.array(self._rivals), self._promising(price, runs)
        places = np.union1d(promising, best[np.argsort(-self._mean[best])[:_RIVALS]])
        mean, covariance = self._surrogate.joint_prediction(self._pool.codes[places])
        rivals = expected_gain.Rivals(
            mean=mean,
            covariance=covariance,
            runs=runs[places],
            known=np.isin(places, self._rivals),
            errors=self._errors[places],
            freedom=1.0 + self._surrogate.measured,  # what is assumed beforehand counts as one measurement
            ceiling=self._goal.ceiling,
            scale=self._scale,
        )
        return Compared(places, np.searchsorted(places, promising), rivals)

    @property
    def _needs_repeat(self) -> bool:
        """Whether the best must be measured again before the search may end.

        It must after one measurement where no session serves the probes, because nothing else measures it again. It
        must also while its measurements are far above what the others foretell, until there are four.
        """
        if self.best is None or not self._open[self.best]:
            return False
        times = len(self._measured[self._measured_places.index(self.best)].values)
        return (times == 1 and not self._observed.warm) or (times < 4 and self._is_surprising)

    @property
    def _is_surprising(self) -> bool:
        """Whether the mean of the best is 2.5 standard deviations above what three others or more foretell."""
        if self.best is None or len(self._measured_places) < 4:
            return False
        return self._alone.residual(self._pool.codes[self.best]) > 2.5

    def _promising(self, price: Price, runs: Floats) -> Codes:
        """Return the places of the configs of which exact knowledge would gain most per second, the best one first."""
        gain = self._expected_gain(0.0, runs)
        order = np.argsort(-gain / self._costs.seconds(price))[:_RIVALS]
        return order[gain[order] > 0.0]

    def _first(self) -> int:
        """Return the place of the config to begin with: see `pool.first`."""
        failed = self._pool.levels.codes(self._observed.failed)
        return first(self._pool, self._open, self._pool.places(self._observed.closed), failed)

    def _upward(self) -> int | None:
        """Return the place of the first config on a high rung, if it has run and nothing has failed; else None."""
        if not self._rivals or self._observed.closed:
            return None
        return upward(self._pool, self._measured_places, self._open & (self._runs >= 0.9))

    def _less_certain(self, best: int) -> int:
        """Choose the best config or its strongest challenger, whichever is less certain.

        A single measurement may gain nothing, although several would (Frazier and Powell 2010). The search needs
        certainty about the best, as the LUCB rule does (Kalyanakrishnan et al. 2012).
        """
        challenger = int(np.where(self._open, self._threat, -1.0).argmax())
        places = [place for place in (challenger, best) if self._open[place]]
        return max(places, key=lambda place: self._predictions.deviation[place])

    @cached_property
    def _alone(self) -> Surrogate:
        """What the measurements of this case alone say."""
        return Surrogate(self._pool.levels, self._readings)

    @cached_property
    def _surrogate(self) -> Surrogate | Mixture:
        """What the measurements of this case say, averaged with what those of similar cases add where there are any."""
        if self._source is None:
            return self._alone
        return Mixture(self._alone, Surrogate(self._pool.levels, self._readings, self._source))

    @cached_property
    def _readings(self) -> Readings:
        """The measurements that the model learns from: single ones in logarithms, otherwise means of a config."""
        devices, levels = self._observed.newest_devices, self._pool.levels
        if self._in_logarithms:
            return mean_readings(singles(self._measured), devices, levels, logs=True)
        return mean_readings(self._measured, devices, levels)

    @cached_property
    def _predictions(self) -> Prediction:
        """The expected value of each config, and its standard deviation."""
        return self._surrogate.predict(self._pool.codes)

    @property
    def _scale(self) -> float:
        """The amount of which shares are given: the best's value, or 1 for logarithms, whose differences are shares."""
        return 1.0 if self._in_logarithms else max(abs(float(self._mean[self.best or 0])), 1e-9)

    @property
    def _mean(self) -> Floats:
        """The expected value of each config."""
        return self._predictions.mean

    @cached_property
    def _gain(self) -> Floats:
        """The expected gain of one more measurement of each config."""
        return self._expected_gain(self._errors, self._runs)

    @cached_property
    def _errors(self) -> Floats:
        """The standard error of one more measurement of each config."""
        errors = np.full(len(self._pool.configs), self._readings.error)
        errors[self._measured_places] = single_errors(self._measured)
        return np.hypot(errors, self._alone.scatter)

    def _expected_gain(self, errors: Floats | float, runs: Floats) -> Floats:
        """Return the expected gain of one measurement of each config, by its standard error and its chance to run."""
        gain = expected_gain.knowledge_gradient(
            *self._predictions, errors, self._rivals, ceiling=self._goal.ceiling, tie=WITHIN * self._scale
        )
        return np.where(self._open, gain * runs, 0.0)

    @property
    def _threat(self) -> Floats:
        """The probability that each config works and is better than the best by more than `WITHIN`."""
        (mean, deviation), best = self._predictions, self.best or 0
        threat = self._runs * (1.0 - expected_gain.below(mean[best] + WITHIN * self._scale, mean, deviation))
        threat[best] = 0.0
        return np.where(self._open, threat, 0.0)

    @cached_property
    def _runs(self) -> Floats:
        """The probability that each config runs, 0 where it is not launched.

        Once a config has run, those that fit into memory and time with a probability below 0.1 are not launched, nor
        those that run with one below 0.05 for any cause.
        """
        runs = self._chances.copy()
        if self._rivals:
            runs[(self._costs.possible < 0.1) | (runs < 0.05)] = 0.0
        runs[self._measured_places] = 1.0
        return runs

    @cached_property
    def _chances(self) -> Floats:
        """The probability that each config runs, launched or not; 1 where it has run."""
        chances = self._costs.runs.copy()
        chances[self._measured_places] = 1.0
        return chances
