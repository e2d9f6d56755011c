"""Predicts the value of each config, its memory and seconds, whether it runs and why not; and how far off this may be.

It learns from the trials of the case, and from those of its siblings: similar cases that were searched before. A place
is the position of a config in the pool. A value is a config's first objective; larger values are better.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.records.trial import MEMORY_SHARE, RUN_S, START_S
from tuner.search.frontier import HOST_MEMORY
from tuner.search.gain.expected_gain import Goal, chance_below
from tuner.search.gain.pool import Codes, Levels, Pool, ends_so_far, within_ends
from tuner.search.gain.readings import Readings, have_logarithms, in_logarithms, mean_readings, single_errors
from tuner.search.gain.surrogate import (
    ACTING_TOGETHER,
    Mixture,
    Nearness,
    Surrogate,
    common_effect,
    pair_effects,
    single_effects,
)
from tuner.search.resource_model import Floats, Prediction, ResourceModel, fitted_after_siblings
from tuner.search.trials import Observed
from tuner.study import Config, ProbeSpec, Value

GROWING_SHARE = 0.25
"""The share of the first measured seconds that is expected to grow with the number of environments.

On two H200s, it was a quarter of the 17 s at 1,024 environments, half-way up the ladder.
"""
Setting = tuple[str, Value]
"""A parameter and its value."""


class Costs:
    """Predicts the cost of each config of a pool from the measured costs of this case and its siblings.

    All arrays have an element for each config of the pool. `starts` is how many trainer starts a probe of each config
    takes now: 0 in an open session, otherwise 1.
    """

    def __init__(self, pool: Pool, observed: Observed, limits: ProbeSpec) -> None:
        self._pool = pool
        self._observed = observed
        self._limits = limits
        self._longest_start_s = observed.longest_start_s(limits, pool.space)
        self._ran = [entry.config for entry in observed.measured.values()]
        self._ones = np.ones(len(pool.configs))

    @cached_property
    def chance_to_run(self) -> Floats:
        """The probability that a probe of each config succeeds: it fits, and does not fail for another reason.

        Failures of its values never make it 0, so that the bound on what a search has missed counts such a config, too.
        """
        levels, codes = self._pool.levels, self._pool.codes
        ran, failed = levels.codes(self._ran), levels.codes(self._failed)
        by_nearness = chance_by_nearness(levels, ran, failed, codes)
        return self.chance_to_fit * by_nearness * factor_by_suspects(ran, failed, codes)

    @cached_property
    def chance_to_fit(self) -> Floats:
        """The probability that each config fits into memory, headroom included, and that its trainer starts in time."""
        fits_devices = self._ones  # until a share of their memory has been measured
        if self._memory_model is not None:
            means, deviations = self._memory_model.logarithms_at(self._pool.codes)
            fits_devices = chance_below(math.log(1.0 - self._limits.headroom_pct / 100.0), means, deviations)
        return fits_devices * self._chance_to_fit_host * (1.0 - self.chance_of_slow_start)

    @cached_property
    def failing_settings(self) -> list[Setting]:
        """The parameter values that surely cause failures: see the function `failing_settings`."""
        return failing_settings(self._ran, self._failed)

    @cached_property
    def _failed(self) -> list[Config]:
        """The configs whose failure no model of memory or time explains."""
        return [*self._observed.failed, *(self._observed.out_of_memory if self._memory_model is None else ())]

    @cached_property
    def _memory_model(self) -> ResourceModel | None:
        """The model of the share of a device's memory that each config needs; None before any share was measured.

        None also where another program reports which configs ran out, without the shares of those that ran. Then the
        model could not know how much less these needed.
        """
        memoryless, too_large = self._observed.memoryless, self._observed.out_of_memory
        if not memoryless:
            return None
        return self._model_of(MEMORY_SHARE, error=0.03, choice_deviation=0.25, ignored=memoryless, exceeding=too_large)

    @cached_property
    def _chance_to_fit_host(self) -> Floats:
        """The probability that each config fits into the memory of the host.

        The queue of a DataLoader holds workers times prefetch factor batches. So a config probably needs too much if
        the product of all its sizes is at least that of a config that ran out, and above all that have run. Its
        probability is 0.25, divided by the number of configs that ran out, and at least 0.12, because nothing
        is launched below 0.1.
        """
        if not self._observed.out_of_host_memory:
            return self._ones
        products = np.array([HOST_MEMORY.product(config) for config in self._pool.configs])
        largest_run = max(map(HOST_MEMORY.product, self._ran), default=0.0)
        smallest_out = min(map(HOST_MEMORY.product, self._observed.out_of_host_memory))
        needs_as_much = products >= max(smallest_out, 1.01 * largest_run)
        chance = max(0.25 / len(self._observed.out_of_host_memory), 0.12)
        return np.where(needs_as_much, chance, 1.0)

    @cached_property
    def chance_of_slow_start(self) -> Floats:
        """The probability that the trainer of each config takes longer to start than the limits allow."""
        if self._start_model is None:
            return 0.0 * self._ones
        means, deviations = self._start_model.logarithms_at(self._pool.codes)
        return 1.0 - chance_below(math.log(self._longest_start_s), means, deviations)

    def seconds(self, starts: Floats) -> Floats:
        """Return the expected seconds of a probe of each config now, with its start if it needs one.

        A config outside the open session ends it. This also costs another start, because the search will return to that
        session. A probe that starts too slowly takes the longest time that a start may take.
        """
        in_session = starts == 0.0
        restart_s = self._start_s[in_session].mean() if in_session.any() else 0.0
        in_time_s = starts * (self._start_s + restart_s) + self._run_s
        chance_of_slow = self.chance_of_slow_start
        return in_time_s * (1.0 - chance_of_slow) + self._longest_start_s * chance_of_slow

    def series_s(self, starts: Floats, places: Codes, probes_each: int) -> float:
        """Return the expected seconds of a series of probes: the runs, and the starts of the sessions they need.

        Configs of one rung share a session if the newest probe had one. Without sessions each probe has a start.

        Args:
            starts: The starts that a probe of each config of the pool takes now.
            places: The positions of the probed configs in the pool.
            probes_each: How often each is probed.
        """
        start_s_of: dict[object, float] = {}  # session → the seconds of its longest start
        for place in places[starts[places] > 0.0]:
            session = self._pool.heights[place] if self._observed.warm else place
            start_s_of[session] = max(start_s_of.get(session, 0.0), float(self._start_s[place]))
        starts_of_session = 1 if self._observed.warm else probes_each
        return sum(start_s_of.values()) * starts_of_session + probes_each * float(self._run_s[places].sum())

    @cached_property
    def _start_model(self) -> ResourceModel | None:
        """The model of the seconds until a trainer has started; None before any was measured."""
        return self._model_of(START_S, error=0.1, choice_deviation=0.3, growing_share=GROWING_SHARE)

    @cached_property
    def _start_s(self) -> Floats:
        """The expected seconds until the trainer of each config has started."""
        return self._expected_s(self._start_model, usual_s=60.0)

    @cached_property
    def _run_s(self) -> Floats:
        """The expected seconds of a probe of each config after the start."""
        model = self._model_of(RUN_S, error=0.2, choice_deviation=0.5, growing_share=GROWING_SHARE)
        return self._expected_s(model, usual_s=20.0)

    def _expected_s(self, model: ResourceModel | None, usual_s: float) -> Floats:
        """Return the seconds that a model expects of each config; `usual_s` before any measurement, without a model."""
        return usual_s * self._ones if model is None else np.exp(model.logarithms_at(self._pool.codes).mean)

    def _model_of(self, amount: str, *, exceeding: Sequence[Config] = (), **settings: Any) -> ResourceModel | None:
        """Return the model of one measured amount, such as `START_S`, with the siblings' models as prior.

        None without a measurement. `exceeding`: the configs that surely need more than 1.0 of it. `settings`: those of
        `ResourceModel`.
        """
        known = self._observed.known_amounts(amount, self._pool.space)
        return fitted_after_siblings(self._pool.space, known, exceeding=exceeding, **settings)


def chance_by_nearness(levels: Levels, ran: Codes, failed: Codes, codes: Codes) -> Floats:
    """Return the probability that each config runs, by its nearness to those that ran and failed; 1 if none failed.

    A Gaussian process is fitted to 1 for each config that ran and -1 for each that failed (regression on labels:
    Rasmussen and Williams, 2006, 6.5). Each value and each pair of values has an effect of variance 1. So a value that
    fails everywhere is soon suspected everywhere, and two values that fail together are suspected only together. All
    values together have an effect with the standard deviation 0.5, and noise has 0.1. A config runs if its label is
    above 0, where labels lie about the expected label with the standard deviation 0.5. That is 0.7 before any
    measurement, so about nine in ten configs of which nothing is known are expected to run.

    Args:
        levels: The distances between the values of each parameter.
        ran: The configs that ran: a row of codes each, as all configs here.
        failed: The configs that failed for another reason than memory or time.
        codes: The configs whose probabilities are returned.
    """
    if not len(failed):
        return np.ones(len(codes))
    known, prior_mean = np.concatenate([ran, failed]), 0.7
    distances = levels.distances(known)
    lengths = variances = np.ones(known.shape[1])

    def covariance(rows: Codes) -> Floats:
        """Return the covariance of some configs with the known ones: row by column."""
        nearness = Nearness(distances, rows)
        effects = single_effects(nearness, lengths, variances) + pair_effects(nearness, lengths)
        return effects + 0.5**2 * common_effect(nearness, lengths)

    labels = np.concatenate([np.full(len(ran), 1.0), np.full(len(failed), -1.0)])
    weights = np.linalg.solve(covariance(known) + 0.1**2 * np.eye(len(known)), labels - prior_mean)
    expected_label = prior_mean + covariance(codes) @ weights
    return chance_below(0.0, -expected_label, np.full(len(codes), 0.5))  # that the label is above 0


def factor_by_suspects(ran: Codes, failed: Codes, codes: Codes) -> Floats:
    """Return a factor on the probability that each config runs: low if it has values that are suspected of failures.

    A value, or a pair of values, explains a failure if the failed config has it and no config with it ran. The one that
    explains most failures is suspected first, then the one that explains most of the other failures, and so on. With n
    failures that it explains, a suspect lowers the probability to 3^(1 - n). If several explain the same failures, each
    may be innocent, so they share the blame: a pair has a fifth of a single value's part.

    Args:
        ran: The configs that ran: a row of codes each, as all configs here.
        failed: The configs that failed for another reason than memory or time.
        codes: The configs whose factors are returned, from 0 to 1.
    """
    factors, unexplained = np.ones(len(codes)), np.ones(len(failed), dtype=bool)
    if not len(failed):
        return factors
    # Each value that a failed config has, and 1 or 0, whether each config has it: config by value.
    columns, values = np.unique([item for row in failed for item in enumerate(row)], axis=0).T
    ran_with, failed_with, codes_with = ((rows[:, columns] == values).astype(float) for rows in (ran, failed, codes))
    # The products below count the configs that have both values: value by value. The diagonal counts single values.
    never_ran = ran_with.T @ ran_with == 0.0
    weights = np.where(np.eye(len(columns), dtype=bool), 1.0, 0.2)
    while True:
        # The value or the pair that explains most failures; a single failure is no ground for suspicion.
        failures = np.where(never_ran, failed_with[unexplained].T @ failed_with[unexplained], 0.0)
        if failures.max(initial=0.0) <= 1.0:
            return factors
        first, second = np.unravel_index(failures.argmax(), failures.shape)
        explained = unexplained & (failed_with[:, first] * failed_with[:, second] > 0.0)
        count = explained.sum()
        # All that explain the same failures share the blame. Each pair stands once in the upper triangle.
        suspects = np.triu(never_ran & (failed_with[explained].T @ failed_with[explained] == count))
        blame = suspects * weights
        share = ((codes_with @ blame) * codes_with).sum(axis=1) / blame.sum()  # of the blame, on each config's values
        factors *= np.maximum(3.0 ** (1.0 - count), 1.0 - share)
        unexplained &= ~explained


def failing_settings(ran: Sequence[Config], failed: Sequence[Config]) -> list[Setting]:
    """Return the parameter values that must be a cause of failures, to tell the user.

    Such a value never ran, and failed beside two or more settings of the other parameters. Beside one of these
    settings another value of its parameter ran. Without that, the other parameters may be the cause. An example:

        ran:     compile=no  batch=8
        failed:  compile=yes batch=8
        failed:  compile=yes batch=16

    Here `compile=yes` is a cause, because it failed twice, and `compile=no` ran beside the same `batch=8`. `batch=16`
    is none, because it failed beside one setting only.
    """

    def others(config: Config, name: str) -> frozenset[Setting]:
        """Return what a config sets for all parameters but `name`."""
        return frozenset(item for item in config.items() if item[0] != name)

    settings = []
    for name, value in dict.fromkeys(item for config in failed for item in config.items()):
        failed_beside = {others(config, name) for config in failed if config.get(name) == value}
        never_ran = all(config.get(name) != value for config in ran)
        ran_beside = {others(config, name) for config in ran if name in config}
        if len(failed_beside) >= 2 and never_ran and failed_beside & ran_beside:
            settings.append((name, value))
    return settings


LIKELY = 0.7
"""A neighbour of the best is probed before the end if it fits into memory and time with more than this probability."""
MOST_COMPARED = 60
"""The most configs that are compared with each other: so many promising ones, and so many of the best so far."""


class Outlook:
    """What is known of each config of a pool after the trials so far: each array has an element per config."""

    def __init__(
        self, pool: Pool, observed: Observed, limits: ProbeSpec, goal: Goal, source: Surrogate | None = None
    ) -> None:
        """Derive what is known of each config from the trials.

        Args:
            pool: The configs.
            observed: What the trials show of each config.
            limits: When a start takes too long, and how much memory must stay free.
            goal: How well the best config must be known.
            source: The model of the measurements of similar cases; None without any.
        """
        self.pool, self.observed, self.goal, self._source = pool, observed, goal, source
        self.costs = Costs(pool, observed, limits)
        self.measured = list(observed.measured.values())
        """The measured configs, with their values as logarithms if `in_logarithms`."""
        self.in_logarithms = goal.ceiling == math.inf and source is None and have_logarithms(self.measured)
        """Whether values are modelled as logarithms, as those of a speed, which a choice multiplies."""
        if self.in_logarithms:
            self.measured = list(map(in_logarithms, self.measured))
        self.measured_places = pool.places(observed.measured)
        measured = zip(self.measured_places, self.measured, strict=True)
        self.eligible_places = [place for place, entry in measured if entry.eligible]
        """The places of the measured configs that may be the best."""
        barred = set(self.measured_places) - set(self.eligible_places)
        unavailable = set(pool.places(observed.running_or_failed)) | barred
        self.may_probe_later = np.ones(len(pool.configs), dtype=bool)
        """Whether each config may be probed once all ranges have grown to their ends."""
        self.may_probe_later[list(unavailable)] = False
        # A config cannot run if all its values need at least as much as those of a known failure.
        for values_need in observed.frontier.values_beyond_failures(pool.space):
            # of each value of a parameter whether it needs as much, and so of each config
            configs_need = [np.array(needs)[pool.codes[:, column]] for column, needs in enumerate(values_need)]
            self.may_probe_later &= ~np.logical_and.reduce(configs_need)
        self.range_ends = ends_so_far(pool, unavailable | set(self.measured_places))
        self.may_probe = self.may_probe_later & within_ends(pool, self.range_ends)
        """Whether each config may be probed now: its values lie in the ranges so far."""

    @cached_property
    def best_place(self) -> int | None:
        """The place of the eligible config with the highest expected value; None without one."""
        return max(self.eligible_places, key=lambda place: self.mean[place], default=None)

    @property
    def best_config(self) -> Config | None:
        """The config of `best_place`; None without one."""
        return None if self.best_place is None else self.pool.configs[self.best_place]

    @cached_property
    def is_unmeasured(self) -> NDArray[np.bool_]:
        """Whether each config may be probed and has not been measured."""
        unmeasured = self.may_probe.copy()
        unmeasured[self.measured_places] = False
        return unmeasured

    @cached_property
    def is_new_and_likely(self) -> NDArray[np.bool_]:
        """Whether each config may be probed, has not been measured, and probably runs."""
        return self.is_unmeasured & (self.launch_chance > LIKELY)

    @property
    def scale(self) -> float:
        """What a difference of values is divided by to become a share: the value of the best.

        It is 1 for logarithms, whose differences are shares already. If the best is near 0, as a loss may be, it is a
        hundredth of the measured range.
        """
        if self.in_logarithms:
            return 1.0
        measured_range = float(np.ptp(self.mean[self.measured_places])) if self.measured_places else 0.0
        return max(abs(float(self.mean[self.best_place or 0])), 0.01 * measured_range, 1e-9)

    @property
    def mean(self) -> Floats:
        """The expected value of each config."""
        return self.predictions.mean

    @cached_property
    def predictions(self) -> Prediction:
        """The expected value of each config, and its standard deviation."""
        return self.model.predict(self.pool.codes)

    @cached_property
    def launch_chance(self) -> Floats:
        """The probability that each config runs, or 0 for a config that is not worth launching.

        Once a config has run that may be the best, a config is not worth launching in two cases: it fits into memory
        and time with a probability below 0.1, or it runs with a probability below 0.05 for whatever cause.
        """
        chances = self.chance_to_run.copy()
        if self.eligible_places:
            chances[(self.costs.chance_to_fit < 0.1) | (chances < 0.05)] = 0.0
        chances[self.measured_places] = 1.0
        return chances

    @cached_property
    def chance_to_run(self) -> Floats:
        """The probability that each config runs; 1 where it has run."""
        chances = self.costs.chance_to_run.copy()
        chances[self.measured_places] = 1.0
        return chances

    @cached_property
    def reading_errors(self) -> Floats:
        """The standard error of one more measurement of each config."""
        errors = np.full(len(self.pool.configs), self.readings.usual_error)
        errors[self.measured_places] = single_errors(self.measured)
        return np.hypot(errors, self.case_model.scatter)

    @cached_property
    def model(self) -> Surrogate | Mixture:
        """The model of the values; where there are similar cases, averaged with a model that learns from them."""
        if self._source is None:
            return self.case_model
        return Mixture(self.case_model, Surrogate(self.pool.levels, self.readings, self._source))

    @cached_property
    def case_model(self) -> Surrogate:
        """The model of the values that learns from the measurements of this case alone."""
        return Surrogate(self.pool.levels, self.readings)

    @cached_property
    def predictions_together(self) -> Prediction:
        """What is expected of the logarithms of speeds if what each choice does depends on all others."""
        return Surrogate(self.pool.levels, self.readings, prior=ACTING_TOGETHER).predict(self.pool.codes)

    @cached_property
    def readings(self) -> Readings:
        """The measurements that the model learns from: single ones if `in_logarithms`, otherwise means of configs."""
        measured = self.measured
        if self.in_logarithms:  # a row for each single measurement
            measured = [replace(entry, values=[value]) for entry in measured for value in entry.values]
        return mean_readings(measured, self.observed.newest_devices, self.pool.levels, logs=self.in_logarithms)

    @cached_property
    def usual_error(self) -> float:
        """How far off predictions usually are, as a share of the best; at least as far as measurements scatter.

        It is the median error of leave-one-out cross-validation: each measurement is predicted from all others.
        """
        errors = np.abs(self.case_model.left_out_predictions().mean - self.case_model.known.values)
        return max(float(np.median(errors)), self.case_model.scatter) / self.scale

    @property
    def is_rough(self) -> bool:
        """Whether predictions are off by more than a tenth of the best."""
        return bool(self.eligible_places) and self.usual_error > 0.1

    @cached_property
    def newest_error(self) -> float:
        """How far off the model's newest predictions were, beyond the errors of the measurements: a share of the best.

        Each of the newest ten measurements is predicted from all others, and its own error variance is subtracted from
        the squared difference. The root of the median of these ten is returned.
        """
        known = self.case_model.known
        differences = self.case_model.left_out_predictions().mean - known.values
        excess_variances = np.square(differences) - np.square(known.errors)
        return float(np.sqrt(max(np.median(excess_variances[-10:]), 0.0))) / self.scale
