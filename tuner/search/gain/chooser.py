"""Chooses the config with the largest expected gain per second, until there is nothing left to gain.

A gain is by how much a probe raises the value of the best config. A place is a config's position in the pool. A series
of probes pays if it saves more seconds of the training than it takes.

`GainSampler` does so in any Optuna study: see docs/sampler.md. A sibling is a similar case that was searched before.
"""

import math
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from optuna.study import Study

from tuner.search.choosing import (
    ALL_PROBED,
    FIRST_TRIALS,
    Choice,
    Done,
    History,
    Starts,
    Strategy,
    confirmation,
    one_start,
    retry,
)
from tuner.search.gain import expected_gain
from tuner.search.gain.expected_gain import Goal
from tuner.search.gain.outlook import MOST_COMPARED, Outlook
from tuner.search.gain.pool import Codes, Pool, largest_of
from tuner.search.gain.readings import sibling_readings
from tuner.search.gain.rules import STEEP, Rules
from tuner.search.gain.surrogate import Surrogate
from tuner.search.resource_model import Floats, Prediction
from tuner.search.samplers import StrategySampler, siblings_first
from tuner.search.trials import Observed, Sibling
from tuner.study import PATIENCE, TRAINING_HOURS, Config, ProbeSpec, Space, config_digest, launched, value_text

LEAST_GAIN = 1e-5
"""An expected gain below this share of the best counts as none."""
LEAST_BOUND = 0.025
"""The smallest bound on what a search has missed, as a share of the best, unless it has measured all configs."""
ENOUGH_CONFIGS = 60
"""The number of measured configs after which a search ends although its predictions are rough."""
MANY_FAILURES = 4
"""The failed probes from which on a search doubts what it expects of new configs: see `_claim_after_failures`."""
DOUBTFUL_BOUND = 0.25
"""The smallest such bound of a search with `MANY_FAILURES`."""
LARGEST_PRINTED_BOUND = 0.5
"""The largest such bound that a search with `MANY_FAILURES` states; above it, the search says that it is not sure."""


LAST_NEAR_BEST = 55
"""The probes up to which a search with `MANY_FAILURES` probes more configs near the best; a few readings follow."""
SAVED_NEAR_BEST = 0.0024
"""The share of the training that such a probe saved in the mean, on launches of large models to develop on."""
LEAST_CHANCE_NEAR_BEST = 0.3
"""The probability to run above which such a config is probed."""


class Compared(NamedTuple):
    """The configs of a pool that promise most and the best ones so far: a row per config."""

    places: Codes
    """The places of the configs in the pool."""
    promising: Codes
    """The rows of those that promise a gain, the most promising one first."""
    candidates: expected_gain.Candidates
    """What is known of all of them."""


class Acquisition:
    """What each config of a pool is expected to gain and to take, and what follows for the search."""

    def __init__(self, outlook: Outlook, starts_needed: Starts) -> None:
        """Weigh the configs of an outlook. `starts_needed`: returns how many trainer starts a config takes now."""
        self.outlook = outlook
        self._starts_needed = starts_needed
        self._rules = Rules(outlook)

    def reason_to_end(self) -> str | None:
        """Return in words why nothing is left to gain; None where something is left."""
        if self._rules.place_beyond_ranges is not None:  # a range can still grow
            return None
        return None if len(self._near_best) else self._reason_to_end_within_ranges

    @cached_property
    def _reason_to_end_within_ranges(self) -> str | None:
        """In words, why nothing is left to gain while no range grows further; None where something is left.

        A search ends after `ENOUGH_CONFIGS` although its predictions are rough. It then says that it is not sure.
        """
        outlook = self.outlook
        if not outlook.may_probe.any():
            return self._with_limits(ALL_PROBED)
        if self._must_go_on or self._prospect.pays:
            return None
        shortfall = self._believed_shortfall
        was_newest_off = outlook.newest_error > shortfall.bound and outlook.is_new_and_likely.any()
        if outlook.is_rough or was_newest_off:
            count = len(outlook.measured_places)
            off_pct = 100 * max(outlook.usual_error, outlook.newest_error)
            reason = f"not sure: {count} of {len(outlook.pool.configs):,} configs, predictions off by {off_pct:.2g}%"
            return self._with_limits(reason) if count >= ENOUGH_CONFIGS else None
        has_many_failures = outlook.observed.failures >= MANY_FAILURES
        claim = (
            self._claim_after_failures() if has_many_failures else outlook.goal.reason_to_end(self._prospect, shortfall)
        )
        return self._with_limits(claim)

    def _claim_after_failures(self) -> str:
        """Return in words what a search with many failures may have missed.

        Where many probes fail, the best config often lies among those that are expected to fail, or is much faster than
        predicted. So each config that may fit into memory and time counts as if it ran. `_realised_ratio` does not
        correct the shortfall, because it counts no failed probe. `MANY_FAILURES`, `DOUBTFUL_BOUND` and
        `LARGEST_PRINTED_BOUND` were chosen on launches of large models to develop on (`benchmarks/results/search.md`).
        """
        outlook = self.outlook
        cause = f"{outlook.observed.failures} of {self._probes} probes failed, so it is unclear what else runs"
        chances = np.maximum(outlook.chance_to_run, outlook.costs.chance_to_fit)
        shortfall = expected_gain.draw_shortfall(self._compared(chances).candidates)
        bound = max(shortfall.bound, shortfall.mean, DOUBTFUL_BOUND)
        if bound > LARGEST_PRINTED_BOUND:
            return f"not sure: {cause}"
        return f"{shortfall._replace(bound=bound).in_words}: {cause}"

    @property
    def _probes(self) -> int:
        """The number of probes so far, failed ones included."""
        return self.outlook.observed.failures + sum(len(entry.values) for entry in self.outlook.measured)

    @cached_property
    def _near_best(self) -> Codes:
        """The places of the new configs near the best that a search with many failures may probe before it ends.

        They differ from the best in two parameters at most. Where many probes fail, a choice often does to the best
        what it did to no other config, and the model has learnt little of that. There are none once a probe of the best
        takes longer than such a probe saves in the mean.
        """
        outlook = self.outlook
        if outlook.best_place is None or not outlook.in_logarithms or outlook.observed.failures < MANY_FAILURES:
            return np.array([], dtype=np.intp)
        takes_long = self.probe_s(outlook.best_place) > SAVED_NEAR_BEST * outlook.goal.training_s
        if takes_long or self._left_near_best <= 0:
            return np.array([], dtype=np.intp)
        changes = (outlook.pool.codes != outlook.pool.codes[outlook.best_place]).sum(axis=1)
        may_run = outlook.is_unmeasured & (outlook.launch_chance > LEAST_CHANCE_NEAR_BEST)
        return np.flatnonzero(may_run & (changes <= 2))

    @property
    def _left_near_best(self) -> int:
        """How many more probes may begin near the best, beside those that other workers run."""
        return LAST_NEAR_BEST - self._probes - self.outlook.observed.running

    @property
    def _place_near_best(self) -> int:
        """The place of the config of `_near_best` that gains most per second if choices act together."""
        outlook = self.outlook
        gain = self._expected_gain(0.0, outlook.launch_chance, outlook.predictions_together)
        gain_per_s = gain / outlook.costs.seconds(self._starts)
        return int(max(self._near_best, key=lambda place: gain_per_s[place]))

    @property
    def _must_go_on(self) -> bool:
        """Whether the search goes on, whatever gain further probes promise.

        It does until a config may be the best, and while predictions are rough and fewer than `ENOUGH_CONFIGS` are
        measured. It also does where a rule of thumb asks for a probe, if one of the best takes at most 1 % of the
        training.
        """
        outlook = self.outlook
        if outlook.best_place is None:
            return True
        if outlook.is_rough and len(outlook.measured_places) < ENOUGH_CONFIGS:
            return True
        is_brief = self.probe_s(outlook.best_place) <= 0.01 * outlook.goal.training_s
        return is_brief and self._rules.ask_for_probe

    @cached_property
    def _believed_shortfall(self) -> expected_gain.Shortfall:
        """How far the best is expected to be below the true best, with a bound on that, to print at the end.

        The model's own numbers are multiplied by a power of `_realised_ratio`, which says how well its expected gains
        have come true so far. The bound is at least 0.3 of the model's bound, and at least `LEAST_BOUND`.

        0.3 and the powers 0.5 (of the bound) and 0.8 (of the mean) were chosen on scripts, ladders and kernels to
        develop on, so that 95 of 100 bounds hold and that the mean shortfall is as expected. Where many probes fail,
        fewer hold. This shortfall then only decides when the search ends: see `_claim_after_failures`.
        """
        outlook = self.outlook
        by_model = expected_gain.draw_shortfall(self._compared(outlook.chance_to_run).candidates)
        bound = by_model.bound * min(1.0, max(0.3, math.sqrt(self._realised_ratio)))
        least = LEAST_BOUND if len(outlook.measured_places) < len(outlook.pool.configs) else 0.0
        mean = self._realised_ratio**0.8 * by_model.mean
        return expected_gain.Shortfall(mean, max(bound, least, mean))

    def _with_limits(self, reason: str) -> str:
        """Return a reason to end, with the limits within which it holds, and the values that always failed."""
        outlook = self.outlook
        ends = largest_of(outlook.pool, outlook.range_ends, outlook.best_config or {})
        limits = [f"within these values, of which {' and '.join(ends)} is the largest"] if ends else []
        if outlook.pool.is_part:
            limits.append(f"among {len(outlook.pool.configs):,} configs drawn of a larger space")
        failed = (
            f"every config with {name}={value_text(value)} failed" for name, value in outlook.costs.failing_settings
        )
        return "; ".join([reason, *limits, *failed])

    @property
    def _place_to_repeat(self) -> int | None:
        """The place of the config to measure again once no series of probes pays; None where there is none.

        It is the best if `must_repeat_best`, else the `tie_break_place`. But if the newest predictions were off, new
        configs teach the model more than second readings do. So then at most a fifth of all readings are second ones.
        """
        if self._rules.must_repeat_best:
            return self.outlook.best_place
        # a fifth of all readings are second ones when there is one for every four configs
        if self._predicts_badly and self._rules.second_readings > len(self.outlook.measured_places) // 4:
            return None
        return self._rules.tie_break_place

    @property
    def _predicts_badly(self) -> bool:
        """Whether the newest predictions were off by more than `LEAST_BOUND`, and a new config could be tried."""
        return self.outlook.newest_error > LEAST_BOUND and bool(self.outlook.is_new_and_likely.any())

    @property
    def probes_left(self) -> float | None:
        """The expected number of probes until the search ends; None while no config may be the best."""
        if self.outlook.best_place is None:
            return None
        near_best = min(len(self._near_best), self._left_near_best)
        if near_best > 0 and self._reason_to_end_within_ranges is not None:  # nothing else is left to probe
            return near_best
        # rough predictions would forbid an end before `ENOUGH_CONFIGS` configs, but they seldom stay rough for so long
        left = expected_gain.probes_left(self._chances_to_beat_best, self._rules.probes_for_rare_values)
        return max(left, near_best)

    def is_as_good(self, config: Config) -> bool:
        """Return whether another probe of the best would take longer than a training with this config loses.

        The config is then good enough to be recommended in place of the best, and the probe is saved.
        """
        outlook = self.outlook
        (place,) = outlook.pool.places([config_digest(config)])
        if outlook.best_place is None:
            return False
        share_behind = (outlook.mean[outlook.best_place] - outlook.mean[place]) / outlook.scale
        lost_s = share_behind * outlook.goal.training_s
        return bool(lost_s <= self.probe_s(outlook.best_place))

    def probe_s(self, place: int) -> float:
        """Return the expected seconds of a probe of the config at a place of the pool, if it is made now."""
        return self.outlook.costs.series_s(self._starts, np.array([place]), probes_each=1)

    @cached_property
    def _starts(self) -> Floats:
        """How many trainer starts a probe of each config of the pool takes now."""
        return np.array(list(map(self._starts_needed, self.outlook.pool.configs)))

    def next_place(self) -> int | None:
        """Return the place of the config to probe next; None where no config may be probed.

        A range of values grows in three cases: after a steep step to its end, once nothing is left to gain within it,
        and before any config is measured again. Otherwise, the config is chosen among the values so far. Once nothing
        is left to gain, it lies near the best, if many probes failed.
        """
        outlook, beyond = self.outlook, self._rules.place_beyond_ranges
        if beyond is not None:
            was_steep = math.inf > self._rules.lead(beyond) > STEEP  # infinite: nothing is known before the last step
            if was_steep or self._reason_to_end_within_ranges is not None:
                return beyond
        if len(self._near_best) and self._reason_to_end_within_ranges is not None:
            return self._place_near_best
        place = self._next_within_ranges() if outlook.may_probe.any() else None
        return place if beyond is None or place not in outlook.measured_places else beyond

    def _next_within_ranges(self) -> int:
        """Return the place of the next config among the values so far; at least one may be probed.

        The first of these that applies decides:

        1. The first config of a search begins, and the second lies higher on the ladder.
        2. Until a config may be the best, the config with the largest expected gain per second is measured.
        3. The best is measured again where its mean is surprising.
        4. A config with a value that no measured config has is measured.
        5. Once no series of probes pays, a rule of thumb may ask for a probe.
        6. Where no config gains anything that can be believed, `_next_where_nothing_gains` chooses.
        7. The config with the largest expected gain per second is measured.
        """
        outlook = self.outlook
        # 1
        if not outlook.measured_places:
            return self._rules.first_place()
        if (second := self._rules.second_place()) is not None:
            return second
        # 2
        gain_per_s = np.where(outlook.may_probe, self._gain / outlook.costs.seconds(self._starts), -1.0)
        most_gaining = int(gain_per_s.argmax())
        if outlook.best_place is None:
            return most_gaining
        # 3 to 5
        by_rule = self._next_by_rule(outlook.best_place, gain_per_s)
        if by_rule is not None:
            return by_rule
        # 6 or 7: gains that the newest predictions make doubtful, and that do not pay either, are not believed
        is_too_small = self._gain.max() < LEAST_GAIN * outlook.scale
        nothing_gains = is_too_small or (self._predicts_badly and not self._prospect.pays)
        return self._next_where_nothing_gains(outlook.best_place) if nothing_gains else most_gaining

    def _next_by_rule(self, best: int, gain_per_s: Floats) -> int | None:
        """Return the config that rule 3, 4 or 5 of `_next_within_ranges` asks for; None where none asks for any.

        Args:
            best: The place of the best config.
            gain_per_s: The expected gain per second of each config.
        """
        rules = self._rules
        # 3: a surprising mean may be a mistake of the measurement
        if rules.must_repeat_best and rules.best_is_surprising:
            return best
        # 4: nothing is known of a new value, whatever the model says
        new = rules.place_with_new_value(gain_per_s)
        if new is not None:
            return new
        # 5: a rule of thumb delays the end, so it waits while other probes pay
        place = self._place_to_repeat if rules.place_with_rare_value is None else rules.place_with_rare_value
        return None if place is None or self._prospect.pays else place

    def _next_where_nothing_gains(self, best: int) -> int:
        """Return the place of the config to measure although no single measurement is expected to gain anything.

        1. Where the newest predictions were off, it is the new config with the largest mean plus standard deviation.
        2. Otherwise it is the best or its strongest challenger, whichever is less certain. A single measurement may
           gain nothing, although several would (Frazier and Powell 2010). The search needs certainty about the best,
           as the LUCB rule does (Kalyanakrishnan et al. 2012).
        """
        outlook = self.outlook
        mean, deviation = outlook.predictions
        if self._predicts_badly:  # 1
            return int(np.where(outlook.is_new_and_likely, mean + deviation, -np.inf).argmax())
        challenger = int(np.where(outlook.may_probe, self._chances_to_beat_best, -1.0).argmax())  # 2
        places = [place for place in (challenger, best) if outlook.may_probe[place]]
        return max(places, key=lambda place: deviation[place])

    @cached_property
    def _prospect(self) -> expected_gain.Prospect:
        """The series of probes that pays best, with what it saves and takes. There must be a best config.

        Only configs that promise a gain are in a series; the best ones so far are compared with them.
        """
        outlook = self.outlook
        places, promising, candidates = self._compared(outlook.launch_chance)
        return expected_gain.most_rewarding(
            candidates,
            promising,
            outlook.goal.training_s,
            lambda probes: outlook.costs.series_s(self._starts, places[probes.members], probes.probes_each),
            self._realised_ratio,
        )

    @cached_property
    def _realised_ratio(self) -> float:
        """By how much the gains that the model expects have come true: see `expected_gain.realised_ratio`.

        For each measured config in turn, the gain that all other measurements predict is compared with the gain that it
        made. A gain is by how much the config raised the best of all configs measured before it.
        """
        outlook = self.outlook
        codes = outlook.case_model.known.codes
        _, first_readings = np.unique(codes, axis=0, return_index=True)
        order = np.sort(first_readings)  # each config once, in the order of the measurements
        means, deviations = (each[order] for each in outlook.case_model.left_out_predictions())
        truths = outlook.model.predict(codes[order]).mean
        best_so_far = np.maximum.accumulate(truths)
        expected = expected_gain.expected_improvement(means[1:] - best_so_far[:-1], deviations[1:])
        realised = np.diff(best_so_far)
        return expected_gain.realised_ratio(expected, realised, expected_gain.RATIO_OFFSET * outlook.scale)

    def _compared(self, chances: Floats) -> Compared:
        """Return the configs that promise most and the best ones so far. There must be a best config.

        A config promises most if a measurement without error would gain most per second of its probe.

        `chances`: the probability that each config of the pool runs.
        """
        outlook = self.outlook
        gain = self._expected_gain(errors=0.0, chances=chances)
        promising = np.argsort(-gain / outlook.costs.seconds(self._starts))[:MOST_COMPARED]
        promising = promising[gain[promising] > 0.0]
        eligible = np.array(outlook.eligible_places)
        best = eligible[np.argsort(-outlook.mean[eligible])[:MOST_COMPARED]]
        places = np.union1d(promising, best)
        mean, covariance = outlook.model.joint_prediction(outlook.pool.codes[places])
        candidates = expected_gain.Candidates(
            mean=mean,
            covariance=covariance,
            chance_to_run=chances[places],
            is_measured=np.isin(places, eligible),
            errors=outlook.reading_errors[places],
            degrees_of_freedom=1.0 + outlook.model.measurements,  # what is assumed beforehand counts as one measurement
            ceiling=outlook.goal.ceiling,
            scale=outlook.scale,
        )
        return Compared(places, np.searchsorted(places, promising), candidates)

    @cached_property
    def _gain(self) -> Floats:
        """The expected gain of one more measurement of each config."""
        return self._expected_gain(self.outlook.reading_errors, self.outlook.launch_chance)

    def _expected_gain(self, errors: Floats | float, chances: Floats, predictions: Prediction | None = None) -> Floats:
        """Return the expected gain of one measurement of each config of the pool; 0 where it may not be probed.

        Args:
            errors: The standard error of each measurement.
            chances: The probability that each config runs.
            predictions: What is expected of each config's value; None for what the usual model expects.
        """
        outlook = self.outlook
        margin = expected_gain.EQUAL_WITHIN * outlook.scale
        gain = expected_gain.knowledge_gradient(
            *(predictions or outlook.predictions),
            errors,
            outlook.eligible_places,
            ceiling=outlook.goal.ceiling,
            margin=margin,
        )
        return np.where(outlook.may_probe, gain * chances, 0.0)

    @property
    def _chances_to_beat_best(self) -> Floats:
        """The probability that each config runs and is better than the best by more than `EQUAL_WITHIN`."""
        outlook = self.outlook
        (mean, deviation), best = outlook.predictions, outlook.best_place or 0
        least = mean[best] + expected_gain.EQUAL_WITHIN * outlook.scale
        chances = outlook.launch_chance * (1.0 - expected_gain.chance_below(least, mean, deviation))
        chances[best] = 0.0
        return np.where(outlook.may_probe, chances, 0.0)


class Gain:
    """Weighs what a config is expected to gain against the seconds it takes; see `Acquisition`.

    It derives everything from the study's trials, so a new process continues where another process ended. A config is
    probed again only if its measurements do not yet show whether the config is the best.
    """

    def __init__(
        self,
        space: Space,
        limits: ProbeSpec | None = None,
        *,
        goal: Goal | None = None,
        siblings: Sequence[Sibling] = (),
    ) -> None:
        """Search a space by expected gain. Raises StudyError if no config of a large space keeps its constraints.

        Args:
            space: The parameters and their values.
            limits: When a start takes too long, and how much memory must stay free.
            goal: When the search has found enough.
            siblings: Similar cases, whose measurements tell about this one; the most similar one first.
        """
        self._space = space
        self._limits = limits or ProbeSpec()
        self._goal = goal or Goal()
        self._patience = space.values(PATIENCE)
        self._pool = self._space_pool = Pool(space.restricted_to(set(space.names) - {PATIENCE}))
        self._siblings = siblings
        self._latest: tuple[object, Outlook] | None = None
        """The numbers and states of the trials, and what is known of each config after them."""
        self._acquisitions: dict[Starts, Acquisition] = {}
        """What follows from the latest outlook, for each function that says what a probe takes now."""

    def ended(self, history: History, starts_needed: Starts) -> Done | None:
        """Return why nothing is left to gain; None while something is."""
        reason = self._acquisition(history, starts_needed).reason_to_end()
        return None if reason is None else Done(reason=reason)

    def choose(self, history: History, starts_needed: Starts) -> Choice | None:
        """Choose the config that gains most per second of its probe; None where nothing may be probed any more."""
        acquisition = self._acquisition(history, starts_needed)
        place = acquisition.next_place()
        if place is None:
            return None
        config = self._with_patience(self._pool.configs[place], history.number)
        return Choice(config=config, expected_s=acquisition.probe_s(place), trials_left=acquisition.probes_left)

    def compare_with_own(self, history: History, _starts_needed: Starts) -> Choice | None:
        """Choose the user's own config or the best to be measured again, if their speeds cannot be compared yet.

        None if they can. From the fourth trial on, the own config is also repeated if other programs have disturbed it.
        """
        if self._own is None:
            return None
        disturbed = history.disturbed_baseline(self._own) if history.finished >= FIRST_TRIALS else None
        config = history.incomparable_config(self._own) or disturbed
        return confirmation(self._with_patience(config, history.number)) if config else None

    def confirm(self, history: History, starts_needed: Starts) -> Config | None:
        """Return the config with the highest expected value, if the plain command must still measure it.

        It need not if it has measured a config that is as good, as `Acquisition.is_as_good` decides. A study of a speed
        then measures the user's own config or the best again, if the gain is not sure. None if all is measured.
        """
        acquisition = self._acquisition(history, starts_needed)
        best = acquisition.outlook.best_config
        if best is None:
            return None
        confirmed = [config for config in history.confirmed() if config in self._pool.space]
        config = best
        if best in confirmed or (confirmed and acquisition.is_as_good(confirmed[0])):
            config = history.to_compare(self._own) if self._own else None
        return self._with_patience(config, history.number) if config else None

    @property
    def _own(self) -> Config | None:
        """The user's own config in a study of a speed; None in any other study."""
        return self._space.own if self._goal.ceiling == math.inf else None

    def best(self, history: History) -> Config | None:
        """Return the eligible config with the highest expected value, without the pruner's patience; or None."""
        return self._outlook(history).best_config

    def after_end(self, history: History, starts_needed: Starts) -> Config:
        """Choose a config although the search has ended: the most informative one, otherwise the best."""
        acquisition = self._acquisition(history, starts_needed)
        place = acquisition.next_place()
        if place is None:
            place = acquisition.outlook.best_place or 0  # without a best, any config
        return self._with_patience(self._pool.configs[place], history.number)

    def _with_patience(self, config: Config, number: int) -> Config:
        """Return a config with the pruner's patience added, if the study searches it.

        Trials have the values of the patience in turn. `number`: that of the trial.
        """
        patience = self._patience[number % len(self._patience)] if self._patience else 0
        return self._space.config_of(lambda parameter: config.get(parameter.name, patience))

    def _acquisition(self, history: History, starts_needed: Starts) -> Acquisition:
        """Return what each config is expected to gain and to take, given a history and the starts that it needs now."""
        outlook = self._outlook(history)
        return self._acquisitions.setdefault(starts_needed, Acquisition(outlook, starts_needed))

    def _outlook(self, history: History) -> Outlook:
        """Return what is known of each config, given a history. It is computed anew only when a trial has changed."""
        trials = [trial for trial in history.meaningful if launched(trial.params) in self._pool.space]
        state = [(trial.number, trial.state) for trial in trials]
        if self._latest is None or self._latest[0] != state:
            observed = Observed(trials, sign=history.signs[0], siblings=self._siblings, ladder=self._space.ladder)
            if self._space_pool.is_part:  # too large to list: all neighbours of the best 20 are candidates
                best = sorted(observed.measured.values(), key=lambda entry: -entry.values[-1].number)[:20]
                tried = [launched(trial.params) for trial in trials]
                self._pool = self._space_pool.extended(tried, [entry.config for entry in best])
            self._latest = state, Outlook(self._pool, observed, self._limits, self._goal, self._source)
            self._acquisitions.clear()
        return self._latest[1]

    @cached_property
    def _source(self) -> Surrogate | None:
        """The model of the most similar sibling, from which this case learns; None if no sibling has measured anything.

        Each sibling's model learns from that of the next less similar sibling in turn.
        """
        model, levels = None, self._pool.levels
        for sibling in reversed(self._siblings):
            if (readings := sibling_readings(sibling, levels, self._pool.space)) is not None:
                model = Surrogate(levels, readings, source=model)
        return model


def by_gain(space: Space, gain: Gain, siblings: Sequence[Sibling] = ()) -> Strategy:
    """Return the strategy that probes the siblings' best configs, and then what gains most.

    A search may end before each sibling's best config has been probed.
    """
    choosers = (retry, gain.compare_with_own, gain.ended, siblings_first(space, siblings), gain.choose)
    return Strategy(choosers=choosers, confirm=gain.confirm, predicts_end=True)


class GainSampler(StrategySampler):
    """An Optuna sampler that weighs what a config is expected to gain against the seconds it takes; see `Gain`.

    The study has one objective, which it maximises or minimises.
    """

    def __init__(
        self,
        space: Space,
        limits: ProbeSpec | None = None,
        *,
        training_hours: float = TRAINING_HOURS,
        siblings: Sequence[Sibling] = (),
        starts_needed: Starts = one_start,
    ) -> None:
        """Make a sampler for studies of this space.

        Args:
            space: The parameters and their values.
            limits: When a start takes too long, and how much memory must stay free.
            training_hours: The length of the training that will use the best config. The search ends when more probes
                would take more time than this training gains.
            siblings: Similar cases, whose measurements tell about this one; the most similar one first.
            starts_needed: Returns how many trainer starts a probe of a config takes now.
        """
        goal = Goal(training_hours=training_hours)
        self._gain = Gain(space, limits, goal=goal, siblings=siblings)
        super().__init__(space, by_gain(space, self._gain), starts_needed=starts_needed)

    def best(self, study: Study) -> Config | None:
        """Return the eligible config with the highest expected value, without the pruner's patience; or None."""
        return self._gain.best(History(study, self._space))

    def after_end(self, history: History, done: Done) -> Config:
        """Choose the most informative config left, otherwise the best, so that `study.optimize` runs all its trials."""
        return self._gain.after_end(history, self._starts_needed)
