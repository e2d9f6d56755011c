"""Predicts the value of each config, whether it runs, and how far off these predictions are.

A place is the position of a config in the pool. A value is a config's first objective; larger values are better.
"""

import math
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tuner.search.gain.costs import Costs
from tuner.search.gain.expected_gain import Goal
from tuner.search.gain.pool import Pool, ends_so_far, within_ends
from tuner.search.gain.readings import Readings, have_logarithms, in_logarithms, mean_readings, single_errors
from tuner.search.gain.surrogate import ACTING_TOGETHER, Mixture, Surrogate
from tuner.search.resource_model import Floats, Prediction
from tuner.search.trials import Observed
from tuner.study import Config, ProbeSpec

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
