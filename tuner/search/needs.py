"""What configs need: where memory or time ends, straight lines of both over the rungs, and intervals of both. Pure."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from tuner.probe import MIB_PER_GIB, Failure
from tuner.records.trial import COMPLETE, TrialRecord
from tuner.study import LADDER, PATIENCE, Config, Parameter, Space, Value, ladder_of, launched

GROWING = (LADDER, "batch_size")
"""Larger values of these parameters need more device memory: environments, and environments per minibatch.

So do larger rungs, whichever parameter has the ladder.
"""
MEMORYLESS = frozenset({"update_epochs", "num_workers", "prefetch_factor", PATIENCE})
"""Parameters that do not change the need for device memory.

The effect of any other parameter, such as a command's own, is unknown. Only configs that agree in it are compared.
"""
UNKNOWN_OVERSHOOT_GIB = 1.0
"""The missing memory that is assumed when an out-of-memory failure names no size."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Need:
    """The parameters on which the need for memory or time depends.

    Only configs that agree in all parameters outside `growing` and `ignored` are compared.
    """

    growing: tuple[str, ...] = GROWING
    """A larger value of these parameters never lowers the need."""
    ignored: frozenset[str] = MEMORYLESS
    """These parameters do not change the need."""
    grows_by_rung: bool = True
    """Whether a larger rung never lowers the need, whichever parameter has the ladder."""
    sizes_only: bool = False
    """Whether every number is growing, and no choice changes the need."""

    def product(self, config: Config) -> float:
        """Return the product of all growing sizes of a config; 0 where one is 0, as with a loader without workers."""
        return math.prod(value for name in self.on(None, config) if _is_number(value := config[name]))

    def on(self, ladder: str | None, config: Config | None = None) -> tuple[str, ...]:
        """Return the parameters of which a larger value never lowers the need of a config with this ladder."""
        if self.sizes_only and config:
            return tuple(name for name, value in config.items() if _is_number(value) and name not in self.ignored)
        more = (ladder,) if ladder is not None and self.grows_by_rung else ()
        return tuple(dict.fromkeys((*more, *self.growing)))


DEVICE_MEMORY = Need()
HOST_MEMORY = Need(ignored=frozenset({"update_epochs", PATIENCE}), sizes_only=True)


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """A config that ran out of device memory, or out of the memory or time that `need` describes."""

    config: Config
    violation: float
    """The missing memory, in GiB; always above 0."""
    need: Need = DEVICE_MEMORY


def out_of_memory(config: Config, failure: Failure) -> OutOfMemory:
    """Return a config that ran out of memory, with the missing memory that the failure's message names."""
    overshoot_gib = (failure.overshoot_mib or 0.0) / MIB_PER_GIB
    return OutOfMemory(config, overshoot_gib or UNKNOWN_OVERSHOOT_GIB)


class Frontier:
    """Knows which configs must run out of memory: those that need at least as much as a config that did."""

    def __init__(self, known: Iterable[OutOfMemory] = (), *, ladder: str | None = LADDER) -> None:
        """`ladder`: the parameter whose values are the rungs."""
        self._ladder = ladder
        self._known: dict[Need, dict[frozenset[object], list[OutOfMemory]]] = {}
        for one in known:
            alike = self._known.setdefault(one.need, {})
            alike.setdefault(self._others(one.config, one.need), []).append(one)

    def beyond(self, config: Mapping[str, Value]) -> OutOfMemory | None:
        """Return the known failure that says that `config` cannot run; None if no failure does.

        The missing memory of a failure is scaled to the rung of `config`. Of several failures, the largest counts.
        """
        scaled = (
            OutOfMemory(one.config, one.violation * self._times(config, one.config))
            for need, alike in self._known.items()
            for one in alike.get(self._others(config, need), ())
            if all(_ratio(config.get(name), one.config.get(name)) >= 1.0 for name in need.on(self._ladder, one.config))
        )
        return max(scaled, key=lambda one: one.violation, default=None)

    def _times(self, config: Mapping[str, Value], other: Mapping[str, Value]) -> float:
        return 1.0 if self._ladder is None else _ratio(config.get(self._ladder), other.get(self._ladder))

    def _others(self, config: Mapping[str, Value], need: Need) -> frozenset[object]:
        """Return what must be the same in two configs, so that their needs can be compared."""
        if need.sizes_only:
            return frozenset()
        incomparable = need.ignored.union(need.on(self._ladder))
        return frozenset(one for one in config.items() if one[0] not in incomparable)


def _ratio(value: Value | None, other: Value | None) -> float:
    """Return value / other; 1 where both are equal or missing, 0 where they cannot be compared."""
    if value == other:
        return 1.0
    if not _is_number(value) or not _is_number(other) or other <= 0:
        return 0.0
    return value / other


def _is_number(value: Value | None) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


Floats = NDArray[np.float64]


GROWN, SPREAD = 0.5, 0.8
"""The share of the first measured amount that is expected to grow, and how unsure each part is, as a logarithm."""
LADDER_POWER = 0.02
"""How far the power of the ladder may differ from 1. Memory is linear in `num_envs` (two H200s, MimicKit)."""
SIZE, SIZE_POWER = 0.3, 0.4
"""The usual power of any other size, and how unsure it is."""
FACTOR = 0.4
"""How far two similar cases differ, as the standard deviation of a common logarithm.

On an H200, the pi_plus cases of two methods differed in memory by the factor 1.5.
"""
DIFFERENCE = 0.5
"""How far each parameter of similar cases differs beside that factor, as a share of what is usual."""
JUST_OVER, OVER_ERROR = 1.05, 0.05
"""A config that ran out is expected to need this many times what there is, and the error of its logarithm."""
FEW = 2
"""Numbers with no more values than this are choices, not sizes: a switch has no power."""
SURE = 1e-3
"""What is known for certain is known to this."""
STEPS = 40

Columns = tuple[Floats, Floats]
"""What the fixed part and the growing part of each config depend on: a row per config."""
Amounts = tuple[Sequence[Config], Sequence[float]]
"""Configs of one case, and the amount that was measured for each."""


class Terms:
    """The numbers of a config that its two parts depend on: a row per config."""

    def __init__(self, space: Space, ignored: Collection[str] = ()) -> None:
        """`ignored`: parameters that do not change the amount."""
        self.ladder = ladder_of(space)
        known = [one for one in space.parameters if one.name not in ignored and one.name != PATIENCE]
        self.sizes = [one.name for one in known if _is_size(one)]
        self.choices = [(one.name, value) for one in known if not _is_size(one) for value in one.values[1:]]
        self._middle = {one.name: _logarithm(one.values[len(one.values) // 2]) for one in known if _is_size(one)}

    def columns(self, configs: Sequence[Config]) -> Columns:
        """Return the columns of the fixed part: 1, and whether the config has each choice.

        The growing part has also the logarithm of each size.
        """
        chosen = [[float(config.get(name) == value) for name, value in self.choices] for config in configs]
        fixed = np.column_stack([np.ones(len(configs)), np.array(chosen).reshape(len(configs), len(self.choices))])
        sizes = [
            [_logarithm(config[name]) - self._middle[name] if name in config else 0.0 for name in self.sizes]
            for config in configs
        ]
        return fixed, np.column_stack([fixed, np.array(sizes).reshape(len(configs), len(self.sizes))])


class Growth:
    """The most probable parts of an amount, and how sure they are, after some measurements.

    The logarithm of each part is a linear model with a normal prior. The fit is the Laplace approximation (Bishop,
    "Pattern Recognition and Machine Learning", 2006, 4.4): Gauss and Newton's steps to the most probable parameters,
    then the curvature there. The errors are widened where the measurements are further off than they should be.
    """

    def __init__(
        self,
        space: Space,
        configs: Sequence[Config],
        amounts: Sequence[float],
        *,
        error: float,
        choices: float,
        grown: float = GROWN,
        bend: float = 1.0,
        ignored: Collection[str] = (),
        over: Sequence[Config] = (),
        prior: "Growth | None" = None,
    ) -> None:
        """The standard `error` of a measured amount, and how far `choices` usually change a part, are logarithms.

        A logarithm is about a share. `GROWN` says what `grown` is. With a `bend` of 1 the two parts add up. The larger
        the bend, the more the smaller part hides behind the larger one. The configs `over` need more than 1.0, such as
        more than all memory. The `prior` is the growth in a similar case. Without a prior there must be a measured
        amount or a config that is over.
        """
        self._terms, self._bend = Terms(space, ignored), bend
        known, more = self._terms.columns(configs), self._terms.columns(over)
        self._split = known[0].shape[1]
        wanted = np.log(np.asarray(amounts, dtype=float))
        self._usual, doubt = self._before(prior, wanted, known[1], choices, grown)
        self._given = np.linalg.inv(doubt)
        self._error = error
        self._fitted = self._fit(known, wanted, more)
        means, slopes = self._logarithms(self._fitted, known)
        misfit = float(np.square((means - wanted) / error).sum()) / max(len(wanted), 1)
        self._error = error * max(1.0, math.sqrt(misfit))
        self._doubt = np.linalg.inv(slopes.T @ slopes / self._error**2 + self._given)

    def logarithms(self, configs: Sequence[Config]) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of the logarithm of the amount that a probe of each config will show."""
        means, slopes = self._logarithms(self._fitted, self._terms.columns(configs))
        return means, np.sqrt(np.einsum("ij,jk,ik->i", slopes, self._doubt, slopes) + self._error**2)

    def expect(self, configs: Sequence[Config]) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of the amount that a probe of each config will show."""
        means, deviations = self.logarithms(configs)
        return np.exp(means), np.exp(means) * deviations

    def _before(
        self, prior: "Growth | None", wanted: Floats, growing: Floats, choices: float, grown: float
    ) -> tuple[Floats, Floats]:
        """Return what is expected of the parameters before the fit: mean and covariance."""
        count, sizes = self._split - 1, self._terms.sizes
        powers = [1.0 if name == self._terms.ladder else SIZE for name in sizes]
        unsure = [LADDER_POWER if name == self._terms.ladder else SIZE_POWER for name in sizes]
        spread = np.maximum([SPREAD, *[choices] * count, SPREAD, *[choices] * count, *unsure], SURE)
        both = np.array([1.0, *[0.0] * count, 1.0, *[0.0] * count, *[0.0] * len(sizes)])
        if prior is not None:
            doubt = prior._doubt + FACTOR**2 * np.outer(both, both) + np.diag((DIFFERENCE * spread) ** 2)
            return prior._fitted, doubt
        level = float(wanted.mean()) if len(wanted) else math.log(0.5)
        at = growing[:, self._split :] @ np.array(powers) if len(sizes) and len(wanted) else np.zeros(1)
        usual = np.array([level, *[0.0] * count, level - float(at.mean()), *[0.0] * count, *powers])
        usual[0] += math.log(1.0 - grown) / self._bend
        usual[self._split] += math.log(grown) / self._bend
        return usual, np.diag(spread**2)

    def _fit(self, known: Columns, wanted: Floats, over: Columns) -> Floats:
        """Climb to the most probable parameters (Levenberg and Marquardt)."""
        at, damping = self._usual.copy(), 1e-3
        cost, pull, curvature = self._pull(at, known, wanted, over)
        for _ in range(STEPS):
            move = np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), pull)
            tried = self._pull(at + move, known, wanted, over)
            if tried[0] < cost:
                done = cost - tried[0] < 1e-6 * (1.0 + cost)
                at, (cost, pull, curvature), damping = at + move, tried, damping / 10.0
                if done:
                    break
            else:
                damping *= 10.0
                if damping > 1e8:
                    break
        return at

    def _pull(self, at: Floats, known: Columns, wanted: Floats, over: Columns) -> tuple[float, Floats, Floats]:
        """Return half the squared misfit at some parameters, the way down, and the curvature."""
        means, slopes = self._logarithms(at, known)
        behind, away = (wanted - means) / self._error, at - self._usual
        cost = float(behind @ behind + away @ self._given @ away) / 2.0
        pull = slopes.T @ behind / self._error - self._given @ away
        curvature = slopes.T @ slopes / self._error**2 + self._given
        if len(over[0]):
            means, slopes = self._logarithms(at, over)
            behind = np.maximum(0.0, math.log(JUST_OVER) - means) / OVER_ERROR
            slopes = slopes * (behind > 0.0)[:, None]
            cost += float(behind @ behind) / 2.0
            pull = pull + slopes.T @ behind / OVER_ERROR
            curvature = curvature + slopes.T @ slopes / OVER_ERROR**2
        return cost, pull, curvature

    def _logarithms(self, at: Floats, configs: Columns) -> tuple[Floats, Floats]:
        """Return the logarithm of each amount, and its derivatives by the parameters: config by parameter."""
        fixed, growing = configs
        low, high = fixed @ at[: self._split], growing @ at[self._split :]
        both = np.logaddexp(self._bend * low, self._bend * high) / self._bend
        share = np.exp(self._bend * (high - both))[:, None]
        return both, np.column_stack([(1.0 - share) * fixed, share * growing])


def inherited(space: Space, known: Sequence[Amounts], *, over: Sequence[Config] = (), **settings: Any) -> Growth | None:
    """Return the growth in the last of several similar cases. Each case has the growth of the case before as its prior.

    None where no case has a measured amount. `over` are configs of the last case; `settings`: see `Growth`.
    """
    growth = None
    for place, (configs, amounts) in enumerate(known):
        mine = over if place == len(known) - 1 else ()
        if configs or mine or growth:
            growth = Growth(space, configs, amounts, over=mine, prior=growth, **settings)
    return growth


def _is_size(parameter: Parameter) -> bool:
    numbers = list(filter(_is_number, parameter.values))
    is_positive = len(numbers) == len(parameter.values) and all(number > 0 for number in numbers)
    return is_positive and (parameter.is_ladder or len(numbers) > FEW)


def _logarithm(value: object) -> float:
    return math.log(float(value)) if isinstance(value, int | float) and value > 0 else 0.0


MEMORY: Mapping[str, Any] = {"error": 0.004, "choices": 0.25}
SECONDS: Mapping[str, Any] = {"error": 0.15, "choices": 0.5, "bend": 1.5}
"""How exactly memory and the seconds of an iteration are measured, and how far a choice changes them, as logarithms."""
WIDE = 1.645
"""The standard deviations of an interval that holds 90 % of the values."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """An expected value, and the interval that holds the true value with 90 % probability."""

    mean: float
    low: float
    high: float

    def into(self, amount: float) -> "Interval":
        """Return the interval of an amount divided by this value."""
        return Interval(mean=amount / self.mean, low=amount / self.high, high=amount / self.low)


@dataclass(frozen=True, kw_only=True, slots=True)
class Foreseen:
    """What a config will need and make; None where nothing like it was measured."""

    memory_share: Interval | None
    """The share of a device's memory at its peak."""
    samples_per_s: Interval | None


def foresee(space: Space, trials: Sequence[TrialRecord], configs: Sequence[Config]) -> list[Foreseen]:
    """Return what each config will need and make, from the trials that ran.

    An iteration takes a fixed time and a time for each unit of the ladder; memory likewise. Both follow `Growth`.
    """
    ran = [one for one in trials if one.state == COMPLETE and not one.soaks]
    ladder = ladder_of(space)

    def height(config: Config) -> float:
        return float(config.get(ladder, 1)) if ladder else 1.0

    shares = [(launched(one.config), one.memory_share_pct / 100.0) for one in ran if one.memory_share_pct]
    seconds = [(launched(one.config), height(one.config) / one.samples_per_s) for one in ran if one.samples_per_s]
    needs = _expected(space, shares, configs, ignored=MEMORYLESS, **MEMORY)
    takes = _expected(space, seconds, configs, **SECONDS)
    return [
        Foreseen(memory_share=need, samples_per_s=take and take.into(height(config)))
        for config, need, take in zip(configs, needs, takes, strict=True)
    ]


def _expected(
    space: Space, known: Sequence[tuple[Config, float]], configs: Sequence[Config], **settings: Any
) -> Sequence[Interval | None]:
    """Return the expected amount of each config; `settings`: see `Growth`."""
    if not known:
        return [None] * len(configs)
    tried, amounts = zip(*known, strict=True)
    means, deviations = Growth(space, tried, amounts, **settings).logarithms(configs)
    ends = np.exp(means + WIDE * np.outer([0.0, -1.0, 1.0], deviations))
    return [Interval(mean=mean, low=low, high=high) for mean, low, high in ends.T.tolist()]
