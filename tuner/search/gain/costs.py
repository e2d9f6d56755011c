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
from tuner.search.gain.failing import chance_to_run
from tuner.search.gain.pool import Codes, Pool
from tuner.search.observed import Observed
from tuner.search.resource_model import Floats, Growth, inherited
from tuner.study import Config, ProbeSpec, Value

GROWN_S = 0.25
"""The share of the first measured seconds that is expected to come from the environments.

Half-way up the ladder, most seconds do not depend on the number of environments. On two H200s a quarter of the 17 s at
1,024 environments does.
"""
WITHOUT_CAUSE = 0.001
"""The probability that a config fails although no value and no pair of values is the cause."""
BY_SIZE = 0.8
"""The same for a config that ran out of memory, because its need for memory has a model of its own.

On recorded searches of launches, 0.8 foretold failures better than 0.05, 0.2 and 0.5.
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
        levels, unexplained = self._pool.levels, self._failed
        ran_out = [] if self._memory is None else self._observed.ran_out
        failed = levels.codes([*unexplained, *ran_out])
        otherwise = np.repeat([WITHOUT_CAUSE, BY_SIZE], [len(unexplained), len(ran_out)])
        return self.possible * chance_to_run(levels, levels.codes(self._ran), failed, otherwise, self._pool.codes)

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
        return self._growth(MEMORY_SHARE, error=0.03, choices=0.25, ignored=memoryless, over=ran_out, power=0.4)

    @cached_property
    def fits(self) -> Floats:
        """The probability that each config fits into the memory of the devices, headroom included, and of the host.

        1 for the devices until a share of their memory has been measured.
        """
        if self._memory is None:
            return self.fits_host
        means, deviations = self._memory.logarithms_at(self._pool.codes)
        return below(math.log(1.0 - self._limits.headroom_pct / 100.0), means, deviations) * self.fits_host

    @cached_property
    def fits_host(self) -> Floats:
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
