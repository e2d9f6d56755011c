"""Predicts which config may still gain how much, and what it takes.

A gain is by how much a probe raises the best. A place is a config's position in the pool. A price says how many starts
of the trainer a probe takes now. A series of probes pays if training gains more time than the series takes.
"""

import math
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tuner.search.choosing import ALL_PROBED, Price
from tuner.search.gain import expected_gain
from tuner.search.gain.expected_gain import WITHIN
from tuner.search.gain.outlook import RIVALS, Outlook
from tuner.search.gain.pool import Codes, largest_of
from tuner.search.gain.rules import STEEP, Rules
from tuner.search.resource_model import Floats
from tuner.study import Config, config_digest, value_text

TRIFLE = 1e-5
"""A gain below this share of the best counts as no gain."""
LEAST_BOUND = 0.025
"""The smallest share of the best that a search says that it may have missed, unless it has measured all."""
ENOUGH = 60
"""The number of measured configs after which a search ends although its predictions are rough."""
MANY_FAILURES = 4
"""The failed probes from which on a search doubts what it expects of new configs: see `Acquisition._doubtful_claim`."""
DOUBTFUL_BOUND = 0.25
"""The smallest share of the best that such a search says that it may have missed."""
WORTH_TELLING = 0.5
"""The largest share of the best that such a search states as a bound; above it, the search is not sure."""


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

    def __init__(self, outlook: Outlook) -> None:
        self._outlook = outlook
        self._rules = Rules(outlook)
        self._prospects: dict[Price, expected_gain.Prospect] = {}

    @property
    def best(self) -> int | None:
        """The place of the eligible config with the highest expected value."""
        return self._outlook.best

    @property
    def best_config(self) -> Config | None:
        """The config of `best`."""
        return self._outlook.best_config

    def ended(self, price: Price) -> str | None:
        """Return why nothing is left to gain, and which choices never ran; None where something is left."""
        if self._rules.next_in_range is not None:  # a range can still grow
            return None
        return self._reason_to_end(price)

    def _reason_to_end(self, price: Price) -> str | None:
        """Return why nothing is left to gain within the values so far; None where something is left.

        Where predictions are rough, it promises nothing, and ends after `ENOUGH` configs.
        """
        outlook = self._outlook
        if not outlook.open.any():
            return self._with_causes(ALL_PROBED)
        if self._must_go_on(price):
            return None
        prospect = self._prospect(price)
        if prospect.pays:
            return None
        shortfall = self._believed_loss(price)
        was_newest_off = outlook.newest_error > shortfall.bound and outlook.is_new.any()
        if not outlook.is_rough and not was_newest_off:
            has_many_failures = outlook.observed.failures >= MANY_FAILURES
            claim = self._doubtful_claim(price) if has_many_failures else outlook.goal.in_words(prospect, shortfall)
            return self._with_causes(claim)
        if len(outlook.measured_places) < ENOUGH:
            return None
        off_pct, count = 100 * max(outlook.usual_error, outlook.newest_error), len(outlook.measured_places)
        return self._with_causes(
            f"not sure: {count} of {len(outlook.pool.configs):,} configs, predictions off by {off_pct:.2g}%"
        )

    def _doubtful_claim(self, price: Price) -> str:
        """Return in words what a search with many failures leaves unfound.

        Where many probes fail, the best config often lies among those that are expected to fail, or is much faster than
        predicted. So each config that may fit into memory and time counts as if it ran. The record of gains holds no
        failed probe, so it does not lower the loss. All three numbers were chosen on launches of large models to
        develop on (`benchmarks/results/search.md`).
        """
        outlook = self._outlook
        failures = outlook.observed.failures
        probes = failures + sum(len(entry.values) for entry in outlook.measured)
        cause = f"{failures} of {probes} probes failed, so it is unclear what else runs"
        runs = np.maximum(outlook.chances, outlook.costs.possible)
        loss = expected_gain.shortfall(self._compared(price, runs).rivals)
        bound = max(loss.bound, loss.mean, DOUBTFUL_BOUND)
        if bound > WORTH_TELLING:
            return f"not sure: {cause}"
        return f"{loss._replace(bound=bound).in_words}: {cause}"

    def _must_go_on(self, price: Price) -> bool:
        """Return whether the search goes on, whatever further probes promise."""
        outlook = self._outlook
        if outlook.best is None:
            return True
        if outlook.is_rough and len(outlook.measured_places) < ENOUGH:
            return True
        return self._is_brief(price) and self._rules.must_go_on

    def _believed_loss(self, price: Price) -> expected_gain.Shortfall:
        """Return what the search may have missed: the expected loss, and a bound on it, as a person is told.

        The model's own numbers are corrected by how well its expected gains have come true so far.

        The bound is at least 0.3 of what the model says, and at least `LEAST_BOUND` of the best. The loss is believed
        by a power of the record, because a record of a few gains is too low. All three numbers were chosen on scripts,
        ladders and kernels to develop on, so that 95 of 100 bounds hold and that the mean loss is as expected.
        Where many probes fail, fewer hold. This loss then only decides when the search ends: see `_doubtful_claim`.
        """
        outlook = self._outlook
        by_model = expected_gain.shortfall(self._compared(price, outlook.chances).rivals)
        believed_bound = by_model.bound * min(1.0, max(0.3, math.sqrt(self._realised_ratio)))
        least = LEAST_BOUND if len(outlook.measured_places) < len(outlook.pool.configs) else 0.0
        believed_loss = self._realised_ratio**0.8 * by_model.mean
        return expected_gain.Shortfall(believed_loss, max(believed_bound, least, believed_loss))

    def _is_brief(self, price: Price) -> bool:
        """Return whether a probe takes so little of the training that the search need not ask whether it pays."""
        return self.takes_s(self.best or 0, price) <= 0.01 * self._outlook.goal.training_s

    def _with_causes(self, reason: str) -> str:
        """Return a reason to end, with the limits within which it holds, and the choices that never ran."""
        outlook = self._outlook
        ends = largest_of(outlook.pool, outlook.ends, outlook.best_config or {})
        limits = [f"within these values, of which {' and '.join(ends)} is the largest"] if ends else []
        if outlook.pool.is_part:
            limits.append(f"among {len(outlook.pool.configs):,} configs drawn of a larger space")
        failed = (f"every config with {name}={value_text(value)} failed" for name, value in outlook.costs.causes)
        return "; ".join([reason, *limits, *failed])

    @property
    def _to_repeat(self) -> int | None:
        """The place of the config to measure again once no series of probes pays; None where there is none.

        A best that must be measured again comes first. Then comes the config that tells most about which is the best.
        But if the newest predictions were off, new configs teach the model more than second readings do. So then at
        most a fifth of all readings are second ones.
        """
        if self._rules.needs_repeat:
            return self.best
        # a fifth of all readings are second ones when there is one for every four configs
        if self._predicts_badly and self._rules.repeats > len(self._outlook.measured_places) // 4:
            return None
        return self._rules.doubted

    @property
    def _predicts_badly(self) -> bool:
        """Whether the newest predictions were off by more than any search promises, and a new config could be tried."""
        return self._outlook.newest_error > LEAST_BOUND and bool(self._outlook.is_new.any())

    @property
    def left(self) -> float | None:
        """The probes until the search ends, as far as its predictions tell now; None while no config has run."""
        outlook = self._outlook
        if outlook.best is None:
            return None
        # rough predictions would forbid an end before `ENOUGH` configs, but they seldom stay rough for so long
        return expected_gain.probes_left(self._threat, self._rules.probes_for_rare_values)

    def is_as_good(self, config: Config, price: Price) -> bool:
        """Return whether a config is as good as the best, as well as the search needs to know it.

        It is if to train with it costs no more time than to measure the best once more.
        """
        outlook = self._outlook
        (place,) = outlook.pool.places([config_digest(config)])
        if outlook.best is None:
            return False
        share_behind = (outlook.mean[outlook.best] - outlook.mean[place]) / outlook.scale
        return bool(share_behind * outlook.goal.training_s <= self.takes_s(outlook.best, price))

    def takes_s(self, place: int, price: Price) -> float:
        """Return the expected seconds of a probe of a config now."""
        return self._outlook.costs.series_s(price, np.array([place]), repeats=1)

    def next(self, price: Price) -> int | None:
        """Return the place of the config to probe next; None where no config may be probed.

        It is chosen among the values so far: see `_next`. A range of values grows in three cases: after a steep step to
        its end, once nothing is left to gain within it, and before any config is measured again.
        """
        outlook, grown = self._outlook, self._rules.next_in_range
        if grown is not None:
            is_steep = math.inf > self._rules.lead(grown) > STEEP  # infinite: nothing is known before the last step
            if is_steep or self._reason_to_end(price) is not None:
                return grown
        place = self._next(price) if outlook.open.any() else None
        return place if grown is None or place not in outlook.measured_places else grown

    def _next(self, price: Price) -> int:
        """Return the place of the next config within the values so far; at least one may be probed.

        The first of these that applies decides:

        1. The first config of a search begins, and the second lies higher on the ladder.
        2. The best is measured again where its mean is surprising.
        3. A value that is new is measured.
        4. Once no series of probes pays, a rule of thumb may ask for a probe.
        5. The config with the largest expected gain per second is measured, unless nothing gains.
        """
        outlook = self._outlook
        # 1
        if not outlook.measured_places:
            return self._rules.first()
        if (second := self._rules.upward()) is not None:
            return second
        # 5, without a config that may be the best
        gain_per_s = np.where(outlook.open, self._gain / outlook.costs.seconds(price), -1.0)
        most_gaining = int(gain_per_s.argmax())
        if outlook.best is None:
            return most_gaining
        # 2 to 4
        by_rule = self._next_by_rule(outlook.best, gain_per_s, price)
        if by_rule is not None:
            return by_rule
        # 5
        is_trifling = self._gain.max() < TRIFLE * outlook.scale
        nothing_gains = is_trifling or (self._predicts_badly and not self._prospect(price).pays)
        return self._where_nothing_gains(outlook.best) if nothing_gains else most_gaining

    def _next_by_rule(self, best: int, gain_per_s: Floats, price: Price) -> int | None:
        """Return the place of the config that the rules 2 to 4 of `_next` ask for; None where none asks for any."""
        rules = self._rules
        # 2: a surprising mean may be a mistake of the measurement
        if rules.needs_repeat and rules.is_surprising:
            return best
        # 3: nothing is known of a new value, whatever the model says
        new = rules.new_value(gain_per_s)
        if new is not None:
            return new
        # 4: a rule of thumb delays the end, so it waits while other probes pay
        asked_for = self._to_repeat if rules.rarely_tried is None else rules.rarely_tried
        return None if asked_for is None or self._prospect(price).pays else asked_for

    def _where_nothing_gains(self, best: int) -> int:
        """Return the place of a new config that may be good where predictions were off, else see `_less_certain`."""
        if not self._predicts_badly:
            return self._less_certain(best)
        mean, deviation = self._outlook.predictions
        return int(np.where(self._outlook.is_new, mean + deviation, -np.inf).argmax())

    def _prospect(self, price: Price) -> expected_gain.Prospect:
        """Return the series of probes that pays best, with what it gains and takes. There must be a best config.

        Only configs that promise a gain are in a series; the best ones so far are their rivals.
        """
        outlook = self._outlook
        if price not in self._prospects:
            places, promising, rivals = self._compared(price, outlook.runs)
            self._prospects[price] = expected_gain.most_rewarding(
                rivals,
                promising,
                outlook.goal.training_s,
                lambda probes: outlook.costs.series_s(price, places[probes.members], probes.repeats),
                self._realised_ratio,
            )
        return self._prospects[price]

    @cached_property
    def _realised_ratio(self) -> float:
        """How far the model's expected gains are believed: see `expected_gain.realised_ratio`.

        For each measured config in turn, the gain that was to be expected of it is compared with the gain that it made.
        """
        outlook = self._outlook
        codes = outlook.alone.known.codes
        _, first_readings = np.unique(codes, axis=0, return_index=True)
        order = np.sort(first_readings)  # each config once, in the order of the measurements
        means, deviations = (each[order] for each in outlook.alone.left_out_predictions())
        truths = outlook.surrogate.predict(codes[order]).mean
        best_so_far = np.maximum.accumulate(truths)
        expected = expected_gain.expected_improvement(means[1:] - best_so_far[:-1], deviations[1:])
        realised = np.diff(best_so_far)
        return expected_gain.realised_ratio(expected, realised, expected_gain.LEAST * outlook.scale)

    def _compared(self, price: Price, runs: Floats) -> Compared:
        """Return the configs that promise most and the best ones so far. There must be a best config.

        `runs`: the probability that each config of the pool runs.
        """
        outlook = self._outlook
        promising, measured = self._promising(price, runs), np.array(outlook.rivals)
        best = measured[np.argsort(-outlook.mean[measured])[:RIVALS]]
        places = np.union1d(promising, best)
        mean, covariance = outlook.surrogate.joint_prediction(outlook.pool.codes[places])
        rivals = expected_gain.Rivals(
            mean=mean,
            covariance=covariance,
            runs=runs[places],
            known=np.isin(places, outlook.rivals),
            errors=outlook.errors[places],
            freedom=1.0 + outlook.surrogate.measured,  # what is assumed beforehand counts as one measurement
            ceiling=outlook.goal.ceiling,
            scale=outlook.scale,
        )
        return Compared(places, np.searchsorted(places, promising), rivals)

    def _promising(self, price: Price, runs: Floats) -> Codes:
        """Return the places of the configs of which exact knowledge would gain most per second, the best one first."""
        gain = self._expected_gain(0.0, runs)
        most = np.argsort(-gain / self._outlook.costs.seconds(price))[:RIVALS]
        return most[gain[most] > 0.0]

    def _less_certain(self, best: int) -> int:
        """Return the place of the best config or of its strongest challenger, whichever is less certain.

        A single measurement may gain nothing, although several would (Frazier and Powell 2010). The search needs
        certainty about the best, as the LUCB rule does (Kalyanakrishnan et al. 2012).
        """
        outlook = self._outlook
        challenger = int(np.where(outlook.open, self._threat, -1.0).argmax())
        places = [place for place in (challenger, best) if outlook.open[place]]
        return max(places, key=lambda place: outlook.predictions.deviation[place])

    @cached_property
    def _gain(self) -> Floats:
        """The expected gain of one more measurement of each config."""
        return self._expected_gain(self._outlook.errors, self._outlook.runs)

    def _expected_gain(self, errors: Floats | float, runs: Floats) -> Floats:
        """Return the expected gain of one measurement of each config, by its standard error and its chance to run."""
        outlook = self._outlook
        gain = expected_gain.knowledge_gradient(
            *outlook.predictions, errors, outlook.rivals, ceiling=outlook.goal.ceiling, tie=WITHIN * outlook.scale
        )
        return np.where(outlook.open, gain * runs, 0.0)

    @property
    def _threat(self) -> Floats:
        """The probability that each config works and is better than the best by more than `WITHIN`."""
        outlook = self._outlook
        (mean, deviation), best = outlook.predictions, outlook.best or 0
        threat = outlook.runs * (1.0 - expected_gain.below(mean[best] + WITHIN * outlook.scale, mean, deviation))
        threat[best] = 0.0
        return np.where(outlook.open, threat, 0.0)
