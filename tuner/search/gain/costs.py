"""Predicts the memory and the seconds that a probe of each config takes, whether the config will run, and why not."""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from tuner.records.trial import MEMORY_SHARE, RUN_S, START_S
from tuner.search.choosing import Price
from tuner.search.frontier import HOST_MEMORY
from tuner.search.gain.expected_gain import below
from tuner.search.gain.kernels import Nearness, common_effect, pair_effects, single_effects
from tuner.search.gain.pool import Codes, Levels, Pool
from tuner.search.observed import Observed
from tuner.search.resource_model import Floats, Growth, inherited
from tuner.study import Config, ProbeSpec, Value

GROWN_S = 0.25
"""The share of the first measured seconds that is expected to come from the environments.

Half-way up the ladder, most seconds do not depend on the number of environments. On two H200s a quarter of the 17 s at
1,024 environments does.
"""
Choice = tuple[str, Value]
"""A parameter and its value."""


class Costs:
    """Predicts the cost of each config of a pool from the measured costs of this case and its siblings."""

    def __init__(self, pool: Pool, observed: Observed, limits: ProbeSpec) -> None:
        self._pool = pool
        self._observed = observed
        self._limits = limits
        self._ran = [entry.config for entry in observed.measured.values()]
        self._started: dict[Price, Floats] = {}

    @cached_property
    def runs(self) -> Floats:
        """The probability that each config fits into memory, headroom included, starts in time, and does not fail.

        Nothing is written off: what never ran would be missing in what a search says that it may have missed.
        """
        levels, codes = self._pool.levels, self._pool.codes
        ran, failed = levels.codes(self._ran), levels.codes(self._failed)
        by_nearness = chance_by_nearness(levels, ran, failed, codes)
        return self.possible * by_nearness * factor_by_suspects(ran, failed, codes)

    @cached_property
    def possible(self) -> Floats:
        """The probability that each config fits into memory, headroom included, and starts in time."""
        return self.fits * (1.0 - self.slow)

    @cached_property
    def causes(self) -> list[Choice]:
        """The choices that never ran, and failed for another reason than memory or time: see the function `causes`."""
        return causes(self._ran, self._failed)

    @cached_property
    def _failed(self) -> list[Config]:
        """The configs whose failure no model of memory or time explains."""
        return [*self._observed.failed, *(self._observed.ran_out if self._memory is None else ())]

    @cached_property
    def _memory(self) -> Growth | None:
        """The model of the share of a device's memory; None where none is known.

        None also where another program reports which configs ran out, without the shares of those that ran: then
        nothing tells the model how much less these needed.
        """
        memoryless, ran_out = self._observed.memoryless, self._observed.ran_out
        if not memoryless:
            return None
        return self._growth(MEMORY_SHARE, error=0.03, choices=0.25, ignored=memoryless, over=ran_out)

    @cached_property
    def fits(self) -> Floats:
        """The probability that each config fits into the memory of the devices, headroom included, and of the host.

        1 for the devices until a share of their memory has been measured.
        """
        if self._memory is None:
            return self._fits_host
        means, deviations = self._memory.logarithms_at(self._pool.codes)
        return below(math.log(1.0 - self._limits.headroom_pct / 100.0), means, deviations) * self._fits_host

    @cached_property
    def _fits_host(self) -> Floats:
        """The probability that each config fits into the memory of the host.

        The queue of a DataLoader holds workers times prefetch factor batches. So configs whose product of all sizes is
        at least that of a config that ran out probably need as much, but for products that have run. Their probability
        falls with each config that ran out, but never so far that the search rules them out: at 0.1 it would.
        """
        if not self._observed.host_ran_out:
            return np.ones(len(self._pool.configs))
        products = np.array([HOST_MEMORY.product(config) for config in self._pool.configs])
        largest_run = max(map(HOST_MEMORY.product, self._ran), default=0.0)
        smallest_out = min(map(HOST_MEMORY.product, self._observed.host_ran_out))
        needs_as_much = products >= max(smallest_out, 1.01 * largest_run)
        chance = max(0.25 / len(self._observed.host_ran_out), 0.12)
        return np.where(needs_as_much, chance, 1.0)

    @cached_property
    def slow(self) -> Floats:
        """The probability that a start takes too long."""
        if self._start is None:
            return np.zeros(len(self._pool.configs))
        means, deviations = self._start.logarithms_at(self._pool.codes)
        return 1.0 - below(math.log(self._limits.longest_start_s), means, deviations)

    def seconds(self, price: Price) -> Floats:
        """Return the expected seconds of a probe of each config now.

        A config that ends an open session also costs another start, because the search will return to that session.
        """
        starts = self._starts(price)
        in_session = starts == 0.0
        back_s = self._start_s[in_session].mean() if in_session.any() else 0.0
        in_time_s = starts * (self._start_s + back_s) + self._run_s
        return in_time_s * (1.0 - self.slow) + self._limits.longest_start_s * self.slow

    def series_s(self, price: Price, places: Codes, repeats: int) -> float:
        """Return the expected seconds of a series of probes: the runs, and the starts of the sessions they need.

        Configs of one rung share a session if the newest probe had one. Without sessions each probe has a start.

        Args:
            price: Returns the starts that a probe of a config takes now.
            places: The places of the configs.
            repeats: How often each is probed.
        """
        start_s_of: dict[object, float] = {}  # session → the seconds of its longest start
        for place in places:
            if self._starts(price)[place] > 0.0:
                session = self._pool.heights[place] if self._observed.warm else place
                start_s_of[session] = max(start_s_of.get(session, 0.0), float(self._start_s[place]))
        starts_of_session = 1 if self._observed.warm else repeats
        return sum(start_s_of.values()) * starts_of_session + repeats * float(self._run_s[places].sum())

    def _starts(self, price: Price) -> Floats:
        """Return how many starts a probe of each config needs now."""
        if price not in self._started:
            self._started[price] = np.array(list(map(price, self._pool.configs)))
        return self._started[price]

    @cached_property
    def _start(self) -> Growth | None:
        """The model of the seconds until a trainer has started; None before any was measured."""
        return self._growth(START_S, error=0.1, choices=0.3, grown=GROWN_S)

    @cached_property
    def _start_s(self) -> Floats:
        """The expected seconds of a start of each config."""
        return self._expected(self._start, usual_s=60.0)

    @cached_property
    def _run_s(self) -> Floats:
        """The expected seconds of a run of each config, after the start."""
        return self._expected(self._growth(RUN_S, error=0.2, choices=0.5, grown=GROWN_S), usual_s=20.0)

    def _expected(self, growth: Growth | None, usual_s: float) -> Floats:
        """Return the expected seconds of each config, which are `usual_s` before any were measured."""
        if growth is None:
            return np.full(len(self._pool.configs), usual_s)
        return np.exp(growth.logarithms_at(self._pool.codes).mean)

    def _growth(self, name: str, *, over: Sequence[Config] = (), **settings: Any) -> Growth | None:
        """Return the model of a part of the cost, with the siblings' models as prior: see `inherited`."""
        known = self._observed.known_amounts(name, self._pool.space)
        return inherited(self._pool.space, known, over=over, **settings)


def chance_by_nearness(levels: Levels, ran: Codes, failed: Codes, codes: Codes) -> Floats:
    """Return the probability that each config runs, by its nearness to those that ran and failed; 1 if none failed.

    A Gaussian process over the same distances as those of the values is fitted to 1 for each config that ran and -1 for
    each that failed (regression on labels: Rasmussen and Williams, 2006, 6.5). The effects of each value and of each
    pair of values, of variance 1, add up: a value that fails everywhere is soon suspected everywhere, and two values
    that fail beside each other only there. All values together have an effect with the standard deviation 0.5, and
    chance one of 0.1. A config of which nothing is known lies 0.7 above the threshold: about nine in ten such configs
    run.

    Args:
        levels: The distances between the values of each parameter.
        ran: The configs that ran.
        failed: The configs that failed for another reason than memory or time.
        codes: The configs in question.
    """
    if not len(failed):
        return np.ones(len(codes))
    known, usual = np.concatenate([ran, failed]), 0.7
    distances = levels.distances(known)
    lengths = variances = np.ones(known.shape[1])

    def covariance(rows: Codes) -> Floats:
        """Return the covariance of some configs with the known ones: row by column."""
        nearness = Nearness(distances, rows)
        effects = single_effects(nearness, lengths, variances) + pair_effects(nearness, lengths)
        return effects + 0.5**2 * common_effect(nearness, lengths)

    labels = np.concatenate([np.full(len(ran), 1.0), np.full(len(failed), -1.0)])
    weights = np.linalg.solve(covariance(known) + 0.1**2 * np.eye(len(known)), labels - usual)
    return below(0.0, -(usual + covariance(codes) @ weights), np.full(len(codes), 0.5))


def factor_by_suspects(ran: Codes, failed: Codes, codes: Codes) -> Floats:
    """Return the factor on the probability that each config runs, for its values and pairs of values that never ran.

    Suspected is what explains most failures, then what explains most of the failures that are left. With each failure
    after the first, configs that have it run with a third of the probability. Where several values or pairs explain
    the same failures, each may be innocent, and they share the blame: a pair has a fifth of a single value's part.

    Args:
        ran: The configs that ran.
        failed: The configs that failed for another reason than memory or time.
        codes: The configs in question.
    """
    factors, unexplained = np.ones(len(codes)), np.ones(len(failed), dtype=bool)
    if not len(failed):
        return factors
    # Each value that a failed config has, and whether each config has it: config by value.
    columns, values = np.unique([item for row in failed for item in enumerate(row)], axis=0).T
    have_run, have_failed, have = ((rows[:, columns] == values).astype(float) for rows in (ran, failed, codes))
    # Products count configs that have two values: value by value. On the diagonal, it is a single value.
    never_ran = have_run.T @ have_run == 0.0
    weights = np.where(np.eye(len(columns), dtype=bool), 1.0, 0.2)
    while True:
        # The value or the pair that explains most failures; a single failure is no ground for suspicion.
        failures = np.where(never_ran, have_failed[unexplained].T @ have_failed[unexplained], 0.0)
        if failures.max(initial=0.0) <= 1.0:
            return factors
        first, second = np.unravel_index(failures.argmax(), failures.shape)
        explained = unexplained & (have_failed[:, first] * have_failed[:, second] > 0.0)
        count = explained.sum()
        # All that explain the same failures share the blame. Each pair stands once in the upper triangle.
        suspects = np.triu(never_ran & (have_failed[explained].T @ have_failed[explained] == count))
        blame = suspects * weights
        share = ((have @ blame) * have).sum(axis=1) / blame.sum()  # of the blame, on what each config has
        # a config with all of the blame runs a third as often with each failure after the first
        factors *= np.maximum(3.0 ** (1.0 - count), 1.0 - share)
        unexplained &= ~explained


def causes(ran: Sequence[Config], failed: Sequence[Config]) -> list[Choice]:
    """Return the choices that must be a cause of failures.

    Such a choice never ran, and failed beside two or more settings of the other parameters. Beside one of these
    settings another value of its parameter ran. Without that, the other choices may be the cause. An example:

        ran:     compile=no  batch=8
        failed:  compile=yes batch=8
        failed:  compile=yes batch=16

    Here `compile=yes` is a cause, because it failed twice, and `compile=no` ran beside the same `batch=8`. `batch=16`
    is none, because it failed beside one setting only.
    """
    choices = []
    for name, value in dict.fromkeys(item for config in failed for item in config.items()):
        failed_beside = {_without(config, name) for config in failed if config.get(name) == value}
        never_ran = all(config.get(name) != value for config in ran)
        ran_beside = {_without(config, name) for config in ran if name in config}
        if len(failed_beside) >= 2 and never_ran and failed_beside & ran_beside:
            choices.append((name, value))
    return choices


def _without(config: Mapping[str, Value], name: str) -> frozenset[Choice]:
    """Return the choices of a config without that of one parameter."""
    return frozenset(item for item in config.items() if item[0] != name)
