"""Predicts the value of each config, whether it runs, and how far off these predictions are."""

import math
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tuner.search.gain.costs import Costs
from tuner.search.gain.expected_gain import Goal
from tuner.search.gain.pool import Pool, ends_so_far, within_ends
from tuner.search.gain.readings import Readings, have_logarithms, in_logarithms, mean_readings, single_errors, singles
from tuner.search.gain.surrogate import Mixture, Surrogate
from tuner.search.observed import Observed
from tuner.search.resource_model import Floats, Prediction
from tuner.study import Config, ProbeSpec

LIKELY = 0.7
"""A neighbour of the best is probed before the end if it fits into memory and time with more than this probability."""
RIVALS = 60
"""The most promising configs, and the most of the best so far, that are compared with each other."""


class Outlook:
    """What is known of each config of a pool after the trials observed so far: an array has an element per config."""

    def __init__(
        self,
        pool: Pool,
        observed: Observed,
        limits: ProbeSpec,
        goal: Goal,
        source: Surrogate | None = None,
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
        """The measured configs, with their values in logarithms where `in_logarithms`."""
        self.in_logarithms = goal.ceiling == math.inf and source is None and have_logarithms(self.measured)
        if self.in_logarithms:
            self.measured = list(map(in_logarithms, self.measured))
        self.measured_places = pool.places(observed.measured)
        measured = zip(self.measured_places, observed.measured.values(), strict=True)
        self.rivals = [place for place, entry in measured if entry.eligible]
        """The places of the measured configs that may be the best."""
        barred = set(self.measured_places) - set(self.rivals)
        closed = set(pool.places(observed.closed)) | barred
        self.possible = np.ones(len(pool.configs), dtype=bool)
        """Whether each config may be probed, if it fits into the ranges so far."""
        self.possible[list(closed)] = False
        # A config is beyond a known failure where all its values need at least as much.
        for values_need in observed.frontier.by_value(pool.space):
            configs_need = [np.array(needs)[pool.codes[:, column]] for column, needs in enumerate(values_need)]
            self.possible &= ~np.logical_and.reduce(configs_need)
        self.ends = ends_so_far(pool, closed | set(self.measured_places))
        self.open = self.possible & within_ends(pool, self.ends)
        """Whether each config may be probed."""

    @cached_property
    def best(self) -> int | None:
        """The place of the eligible config with the highest expected value."""
        return max(self.rivals, key=lambda place: self.mean[place], default=None)

    @property
    def best_config(self) -> Config | None:
        """The config of `best`."""
        return None if self.best is None else self.pool.configs[self.best]

    @cached_property
    def is_unmeasured(self) -> NDArray[np.bool_]:
        """Whether each config may be probed and has not been measured."""
        unmeasured = self.open.copy()
        unmeasured[self.measured_places] = False
        return unmeasured

    @cached_property
    def is_new(self) -> NDArray[np.bool_]:
        """Whether each config probably runs and has not been measured."""
        return self.is_unmeasured & (self.runs > LIKELY)

    @property
    def scale(self) -> float:
        """The amount of which shares are given: the best's value, or 1 for logarithms, whose differences are shares.

        Of a best near 0, such as that of a loss, no share says anything. Then it is a hundredth of the measured range.
        """
        if self.in_logarithms:
            return 1.0
        measured_range = float(np.ptp(self.mean[self.measured_places])) if self.measured_places else 0.0
        return max(abs(float(self.mean[self.best or 0])), 0.01 * measured_range, 1e-9)

    @property
    def mean(self) -> Floats:
        """The expected value of each config."""
        return self.predictions.mean

    @cached_property
    def predictions(self) -> Prediction:
        """The expected value of each config, and its standard deviation."""
        return self.surrogate.predict(self.pool.codes)

    @cached_property
    def runs(self) -> Floats:
        """The probability that each config runs; 0 for a config that is not worth launching, 1 for one that has run.

        Once a config has run that may be the best, a config is not worth launching in two cases: it fits into memory
        and time with a probability below 0.1, or it runs with a probability below 0.05 for whatever cause.
        """
        runs = self.chances.copy()
        if self.rivals:
            runs[(self.costs.possible < 0.1) | (runs < 0.05)] = 0.0
        runs[self.measured_places] = 1.0
        return runs

    @cached_property
    def chances(self) -> Floats:
        """The probability that each config runs, launched or not; 1 where it has run."""
        chances = self.costs.runs.copy()
        chances[self.measured_places] = 1.0
        return chances

    @cached_property
    def errors(self) -> Floats:
        """The standard error of one more measurement of each config."""
        errors = np.full(len(self.pool.configs), self.readings.error)
        errors[self.measured_places] = single_errors(self.measured)
        return np.hypot(errors, self.alone.scatter)

    @cached_property
    def surrogate(self) -> Surrogate | Mixture:
        """What the measurements of this case say, averaged with what those of similar cases add where there are any."""
        if self._source is None:
            return self.alone
        return Mixture(self.alone, Surrogate(self.pool.levels, self.readings, self._source))

    @cached_property
    def alone(self) -> Surrogate:
        """What the measurements of this case alone say."""
        return Surrogate(self.pool.levels, self.readings)

    @cached_property
    def readings(self) -> Readings:
        """The measurements that the model learns from: single ones in logarithms, otherwise means of a config."""
        devices, levels = self.observed.newest_devices, self.pool.levels
        if self.in_logarithms:
            return mean_readings(singles(self.measured), devices, levels, logs=True)
        return mean_readings(self.measured, devices, levels)

    @cached_property
    def usual_error(self) -> float:
        """How far off predictions are, as a share of the best: the median, and no less than measurements scatter."""
        errors = np.abs(self.alone.left_out_predictions().mean - self.alone.known.values)
        return max(float(np.median(errors)), self.alone.scatter) / self.scale

    @property
    def is_rough(self) -> bool:
        """Whether predictions are off by more than a tenth of the best."""
        return bool(self.rivals) and self.usual_error > 0.1

    @cached_property
    def newest_error(self) -> float:
        """How far off the model's newest predictions were, beyond the errors of the measurements: a share of the best.

        It is the median over the newest ten measurements, each predicted from all others.
        """
        known = self.alone.known
        differences = self.alone.left_out_predictions().mean - known.values
        excess_variances = np.square(differences) - np.square(known.errors)
        return float(np.sqrt(max(np.median(excess_variances[-10:]), 0.0))) / self.scale
