"""Models of the memory and the time that configs need: a fixed part and a part that grows with sizes. Pure."""

import math
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tuner.records.trial import COMPLETE, TrialRecord
from tuner.search.frontier import MEMORYLESS, is_number
from tuner.study import PATIENCE, Config, Parameter, Space, Value, ladder_of, launched

Floats = NDArray[np.float64]


class Prediction(NamedTuple):
    """What a model expects of some configs, one number for each."""

    mean: Floats
    deviation: Floats
    """The standard deviations."""


class Columns(NamedTuple):
    """The numbers that the two parts of an amount depend on: a row per config."""

    fixed: Floats
    growing: Floats


Amounts = tuple[Sequence[Config], Sequence[float]]
"""Configs of one case, and the amount that was measured for each."""


class Terms:
    """Makes the numbers of configs that the two parts of an amount depend on."""

    def __init__(self, space: Space, ignored: Collection[str] = ()) -> None:
        """`ignored`: parameters that do not change the amount."""
        self.ladder = ladder_of(space)
        self.sizes, self.choices = list[str](), list[tuple[str, Value]]()
        self._middle: dict[str, float] = {}
        for parameter in space.parameters:
            if parameter.name in ignored or parameter.name == PATIENCE:
                continue
            if _is_size(parameter):
                self.sizes.append(parameter.name)
                self._middle[parameter.name] = _logarithm(parameter.values[len(parameter.values) // 2])
            else:
                self.choices += [(parameter.name, value) for value in parameter.values[1:]]
        self._parameters = {parameter.name: (at, parameter.values) for at, parameter in enumerate(space.parameters)}
        """Name → the column of the parameter among the space's, and its values."""

    def columns(self, configs: Sequence[Config]) -> Columns:
        """Return the columns of configs.

        The fixed part has a 1, and for each choice 1 or 0: whether the config has it. The growing part also has the
        logarithm of each size as a multiple of the middle size; 0 for a size that the config does not use.
        """
        chosen = [[float(config.get(name) == value) for name, value in self.choices] for config in configs]
        fixed = np.column_stack([np.ones(len(configs)), np.array(chosen).reshape(len(configs), len(self.choices))])
        sizes = [
            [_logarithm(config[name]) - self._middle[name] if name in config else 0.0 for name in self.sizes]
            for config in configs
        ]
        return Columns(fixed, np.column_stack([fixed, np.array(sizes).reshape(len(configs), len(self.sizes))]))

    def columns_at(self, codes: NDArray[np.intp]) -> Columns:
        """Return the same as `columns` for configs given by the places of their values: see `gain.pool.Levels`."""
        fixed = np.ones((len(codes), 1 + len(self.choices)))
        for column, (name, value) in enumerate(self.choices, start=1):
            at, values = self._parameters[name]
            fixed[:, column] = codes[:, at] == values.index(value)
        sizes = np.zeros((len(codes), len(self.sizes)))
        for column, name in enumerate(self.sizes):
            at, values = self._parameters[name]
            logarithms = [_logarithm(value) - self._middle[name] for value in values]
            sizes[:, column] = np.array([*logarithms, 0.0])[codes[:, at]]
        return Columns(fixed, np.column_stack([fixed, sizes]))


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
        grown: float = 0.5,
        bend: float = 1.0,
        ignored: Collection[str] = (),
        over: Sequence[Config] = (),
        prior: "Growth | None" = None,
    ) -> None:
        """Fit the model to at least one amount, one config that is over, or a prior.

        Args:
            space: The parameters, which say what is a size and what is a choice.
            configs: The configs that were measured.
            amounts: What each of them needed, such as a share of the memory, or seconds.
            error: The standard error of a measured amount, as a logarithm, which is about a share.
            choices: How far a choice usually changes a part, as a logarithm.
            grown: The share of the first amount that is expected to grow with the sizes.
            bend: With 1 the two parts add up; the larger it is, the more the smaller part hides behind the larger one.
            ignored: The parameters that do not change the amount.
            over: Configs that need more than 1.0, such as more than all memory.
            prior: The model of a similar case.
        """
        self._terms, self._bend = Terms(space, ignored), bend
        known, beyond = self._terms.columns(configs), self._terms.columns(over)
        self._split = known.fixed.shape[1]  # the parameters before are those of the fixed part
        wanted = np.log(np.asarray(amounts, dtype=float))
        self._expected, covariance = self._prior_of(prior, wanted, known.growing, choices, grown)
        self._precision = np.linalg.inv(covariance)
        self._error, self._needs = error, np.zeros(0)
        self._learn(known, wanted, self._terms.columns(()))
        if over:
            self._needs = _above(math.log(1.05), self._predict(beyond))
            self._error = error
            self._learn(known, wanted, beyond)

    def _learn(self, known: Columns, wanted: Floats, over: Columns) -> None:
        """Fit the parameters, widen the error by the misfit, and compute the covariance at the fit."""
        self._fitted = self._fit(known, wanted, over)
        means, slopes = self._logarithms(self._fitted, known)
        misfit = float(np.square((means - wanted) / self._error).sum()) / max(len(wanted), 1)
        self._error *= max(1.0, math.sqrt(misfit))
        self._covariance = np.linalg.inv(slopes.T @ slopes / self._error**2 + self._precision)

    def logarithms(self, configs: Sequence[Config]) -> Prediction:
        """Return what is expected of the logarithm of the amount that a probe of each config will show."""
        return self._predict(self._terms.columns(configs))

    def logarithms_at(self, codes: NDArray[np.intp]) -> Prediction:
        """Return the same as `logarithms` for configs of the space, by the places of their values."""
        return self._predict(self._terms.columns_at(codes))

    def expect(self, configs: Sequence[Config]) -> Prediction:
        """Return what is expected of the amount that a probe of each config will show."""
        means, deviations = self.logarithms(configs)
        return Prediction(np.exp(means), np.exp(means) * deviations)

    def _predict(self, columns: Columns) -> Prediction:
        """Return what is expected of the logarithm of each amount, the error of a measurement included."""
        means, slopes = self._logarithms(self._fitted, columns)
        variances = np.square(slopes @ np.linalg.cholesky(self._covariance)).sum(axis=1)
        return Prediction(means, np.sqrt(variances + self._error**2))

    def _prior_of(
        self, prior: "Growth | None", wanted: Floats, growing: Floats, choices: float, grown: float
    ) -> tuple[Floats, Floats]:
        """Return mean and covariance of the parameters before the fit.

        The order of the parameters: level and choices of the fixed part, level and choices of the growing part, and the
        power of each size. Memory is linear in `num_envs` (two H200s, MimicKit), so the power of the ladder hardly
        differs from 1. Similar cases differ by a common factor: on an H200, the pi_plus cases of two methods differed
        in memory by 1.5.
        """
        count, sizes = self._split - 1, self._terms.sizes
        powers = [1.0 if name == self._terms.ladder else 0.3 for name in sizes]
        power_deviations = [0.02 if name == self._terms.ladder else 0.4 for name in sizes]
        deviations = np.maximum([0.8, *[choices] * count, 0.8, *[choices] * count, *power_deviations], 1e-3)
        if prior is not None:
            levels = np.array([1.0, *[0.0] * count, 1.0, *[0.0] * count, *[0.0] * len(sizes)])
            common_factor = 0.4**2 * np.outer(levels, levels)
            return prior._fitted, prior._covariance + common_factor + np.diag((0.5 * deviations) ** 2)
        level = float(wanted.mean()) if len(wanted) else math.log(0.5)
        growth = growing[:, self._split :] @ np.array(powers) if len(sizes) and len(wanted) else np.zeros(1)
        mean = np.array([level, *[0.0] * count, level - float(growth.mean()), *[0.0] * count, *powers])
        mean[0] += math.log(1.0 - grown) / self._bend
        mean[self._split] += math.log(grown) / self._bend
        return mean, np.diag(deviations**2)

    def _fit(self, known: Columns, wanted: Floats, over: Columns) -> Floats:
        """Return the most probable parameters, by at most 40 steps of Levenberg and Marquardt."""
        parameters, damping = self._expected.copy(), 1e-3
        descent = self._descent(parameters, known, wanted, over)
        for _ in range(40):
            damped = descent.curvature + damping * np.diag(np.diag(descent.curvature))
            moved = parameters + np.linalg.solve(damped, descent.direction)
            further = self._descent(moved, known, wanted, over)
            if further.cost < descent.cost:
                has_converged = descent.cost - further.cost < 1e-6 * (1.0 + descent.cost)
                parameters, descent, damping = moved, further, damping / 10.0
            else:
                damping *= 10.0
                has_converged = damping > 1e8
            if has_converged:
                break
        return parameters

    def _descent(self, parameters: Floats, known: Columns, wanted: Floats, over: Columns) -> "_Descent":
        """Return the cost of some parameters, and how it falls from there.

        A config that ran out is expected to need what is likely of one that needs more than there is: see `_above`. A
        model that expects even more of it fits as well.
        """
        means, slopes = self._logarithms(parameters, known)
        residuals, away = (wanted - means) / self._error, parameters - self._expected
        cost = float(residuals @ residuals + away @ self._precision @ away) / 2.0
        direction = slopes.T @ residuals / self._error - self._precision @ away
        curvature = slopes.T @ slopes / self._error**2 + self._precision
        if len(over.fixed):
            means, slopes = self._logarithms(parameters, over)
            error = 0.05  # how exactly the amount of such a config is known
            residuals = np.maximum(0.0, self._needs - means) / error
            slopes = slopes * (residuals > 0.0)[:, None]
            cost += float(residuals @ residuals) / 2.0
            direction = direction + slopes.T @ residuals / error
            curvature = curvature + slopes.T @ slopes / error**2
        return _Descent(cost, direction, curvature)

    def _logarithms(self, parameters: Floats, configs: Columns) -> tuple[Floats, Floats]:
        """Return the logarithm of each amount, and its derivatives by the parameters: config by parameter."""
        low, high = configs.fixed @ parameters[: self._split], configs.growing @ parameters[self._split :]
        total = np.logaddexp(self._bend * low, self._bend * high) / self._bend
        share = np.exp(self._bend * (high - total))[:, None]  # of the growing part
        return total, np.column_stack([(1.0 - share) * configs.fixed, share * configs.growing])


class _Descent(NamedTuple):
    """How badly some parameters fit, and how to improve them."""

    cost: float
    """Half the squared misfit."""
    direction: Floats
    """The way down: the negative gradient of the cost."""
    curvature: Floats


def _above(least: float, normal: Prediction) -> Floats:
    """Return the means of normal variables that are known to be above `least`."""
    apart = (least - normal.mean) / normal.deviation
    tail = np.array([0.5 * math.erfc(distance / math.sqrt(2.0)) for distance in apart])
    ratio = np.exp(-0.5 * apart**2) / math.sqrt(2.0 * math.pi) / np.maximum(tail, 1e-12)
    return np.where(apart < 5.0, normal.mean + normal.deviation * ratio, least)  # beyond 5, the ratio is inexact


def inherited(space: Space, known: Sequence[Amounts], *, over: Sequence[Config] = (), **settings: Any) -> Growth | None:
    """Return the growth in the last of several similar cases. Each case has the growth of the case before as its prior.

    None where no case has a measured amount, or one of `over`.

    Args:
        space: The space of the last case.
        known: The measured amounts of each case.
        over: The configs of the last case that need more than 1.0.
        **settings: See `Growth`.
    """
    growth = None
    for place, (configs, amounts) in enumerate(known):
        over_here = over if place == len(known) - 1 else ()
        if configs or over_here or growth:
            growth = Growth(space, configs, amounts, over=over_here, prior=growth, **settings)
    return growth


def _is_size(parameter: Parameter) -> bool:
    """Return whether a parameter has positive numbers; two alone are choices, because a switch has no power."""
    numbers = list(filter(is_number, parameter.values))
    is_positive = len(numbers) == len(parameter.values) and all(number > 0 for number in numbers)
    return is_positive and (parameter.is_ladder or len(numbers) > 2)


def _logarithm(value: object) -> float:
    """Return the logarithm of a positive number; 0 for anything else, which has no effect as a size."""
    return math.log(float(value)) if isinstance(value, int | float) and value > 0 else 0.0


class Interval(NamedTuple):
    """An expected value, and the interval that holds the true value with 90 % probability."""

    mean: float
    low: float
    high: float

    def quotient_of(self, amount: float) -> "Interval":
        """Return the interval of an amount divided by this value."""
        return Interval(mean=amount / self.mean, low=amount / self.high, high=amount / self.low)


class Foreseen(NamedTuple):
    """What a config will need and make; each is None where nothing like it was measured."""

    memory_share: Interval | None
    """The share of a device's memory at its peak."""
    samples_per_s: Interval | None


def foresee(space: Space, trials: Sequence[TrialRecord], configs: Sequence[Config]) -> list[Foreseen]:
    """Return what each config will need and make, from the trials that ran.

    An iteration takes a fixed time and a time for each unit of the ladder; memory likewise. Both follow `Growth`.
    """
    ran = [trial for trial in trials if trial.state == COMPLETE and not trial.soaks]
    ladder = ladder_of(space)

    def rung(config: Config) -> float:
        """Return the rung of a config; 1 without a ladder."""
        return float(config.get(ladder, 1)) if ladder else 1.0

    shares = [(launched(trial.config), trial.memory_share_pct / 100.0) for trial in ran if trial.memory_share_pct]
    times = [(launched(trial.config), rung(trial.config) / trial.samples_per_s) for trial in ran if trial.samples_per_s]
    expected_shares = _expected(space, shares, configs, ignored=MEMORYLESS, error=0.004, choices=0.25)
    expected_times = _expected(space, times, configs, error=0.15, choices=0.5, bend=1.5)
    return [
        Foreseen(memory_share=share, samples_per_s=time and time.quotient_of(rung(config)))
        for config, share, time in zip(configs, expected_shares, expected_times, strict=True)
    ]


def _expected(
    space: Space, measured: Sequence[tuple[Config, float]], configs: Sequence[Config], **settings: Any
) -> Sequence[Interval | None]:
    """Return the expected amount of each config, each None without measured amounts; `settings`: see `Growth`."""
    if not measured:
        return [None] * len(configs)
    tried, amounts = zip(*measured, strict=True)
    means, deviations = Growth(space, tried, amounts, **settings).logarithms(configs)
    ends = np.exp(means + 1.645 * np.outer([0.0, -1.0, 1.0], deviations))  # 90 % of a normal distribution
    return [Interval(mean=mean, low=low, high=high) for mean, low, high in ends.T.tolist()]
