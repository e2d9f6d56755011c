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


class DesignMatrices(NamedTuple):
    """The regressors of the two parts of an amount: a row per config."""

    fixed: Floats
    """Those of the fixed part: a 1, and for each choice 1 or 0: whether the config has it."""
    growing: Floats
    """Those of the growing part: the same, and then the logarithm of each size over the parameter's middle size."""


Amounts = tuple[Sequence[Config], Sequence[float]]
"""Configs of one case, and the amount that was measured for each."""


class Features:
    """Turns configs into the numbers that their amounts of memory or time depend on.

    Each parameter is either a size, whose number scales the growing part of an amount, or a choice between values.
    """

    def __init__(self, space: Space, ignored: Collection[str] = ()) -> None:
        """Sort the parameters of a space into sizes and choices; `ignored` are those that do not change the amount."""
        self.ladder = ladder_of(space)
        self.sizes: list[str] = []
        self.choices: list[tuple[str, Value]] = []
        """Parameter and value, for each value but the first of all parameters that are no sizes."""
        self._middle: dict[str, float] = {}
        """Size → the logarithm of its middle value."""
        for parameter in space.parameters:
            if parameter.name in ignored or parameter.name == PATIENCE:
                continue
            if _is_size(parameter):
                self.sizes.append(parameter.name)
                self._middle[parameter.name] = _logarithm(parameter.values[len(parameter.values) // 2])
            else:
                self.choices += [(parameter.name, value) for value in parameter.values[1:]]
        self._parameters = {parameter.name: (at, parameter.values) for at, parameter in enumerate(space.parameters)}
        """Name → the position of the parameter in the space, and its values."""

    def matrices(self, configs: Sequence[Config]) -> DesignMatrices:
        """Return the design matrices of configs, a row per config in each.

        A value need not belong to the space: a size counts by its number, and any other value as the first choice.
        """
        chosen = np.zeros((len(configs), len(self.choices)))
        sizes = np.zeros((len(configs), len(self.sizes)))
        for row, config in enumerate(configs):
            chosen[row] = [config.get(name) == value for name, value in self.choices]
            sizes[row] = [self._relative_size(name, config.get(name)) for name in self.sizes]
        return self._matrices(chosen, sizes)

    def matrices_of_codes(self, codes: NDArray[np.intp]) -> DesignMatrices:
        """Return the same as `matrices`, but fast: for configs of the space, each given as a row of codes.

        A code is the position of a value among its parameter's values, or their number where there is no value.
        """
        chosen = np.zeros((len(codes), len(self.choices)))
        for column, (name, value) in enumerate(self.choices):
            at, values = self._parameters[name]
            chosen[:, column] = codes[:, at] == values.index(value)
        sizes = np.zeros((len(codes), len(self.sizes)))
        for column, name in enumerate(self.sizes):
            at, values = self._parameters[name]
            size_of_code = np.array([self._relative_size(name, value) for value in (*values, None)])
            sizes[:, column] = size_of_code[codes[:, at]]
        return self._matrices(chosen, sizes)

    def _matrices(self, chosen: Floats, sizes: Floats) -> DesignMatrices:
        """Return the design matrices of configs, by their choices and sizes: a row per config in each."""
        fixed = np.column_stack([np.ones(len(chosen)), chosen])
        return DesignMatrices(fixed, np.column_stack([fixed, sizes]))

    def _relative_size(self, name: str, value: Value | None) -> float:
        """Return the logarithm of a size as a multiple of the middle size; 0 where the config does not use it."""
        return 0.0 if value is None else _logarithm(value) - self._middle[name]


class ResourceModel:
    """Predicts how much of a resource, such as memory or seconds, configs need, after some measurements.

    An amount has a fixed part and a part that grows with sizes. The logarithm of each part is a linear model with a
    normal prior. The fit is the Laplace approximation (Bishop, "Pattern Recognition and Machine Learning", 2006, 4.4):
    the most probable parameters, and the curvature there. The errors are widened where the measurements are further off
    than they should be.
    """

    def __init__(
        self,
        space: Space,
        configs: Sequence[Config],
        amounts: Sequence[float],
        *,
        error: float,
        choice_deviation: float,
        growing_share: float = 0.5,
        bend: float = 1.0,
        ignored: Collection[str] = (),
        exceeding: Sequence[Config] = (),
        prior: "ResourceModel | None" = None,
    ) -> None:
        """Fit the model to at least one amount, one config that exceeds the limit, or a prior.

        Args:
            space: The parameters, which say what is a size and what is a choice.
            configs: The configs that were measured.
            amounts: What each of them needed, such as a share of the memory, or seconds.
            error: The standard error of a measured amount, as a logarithm, which is about a share.
            choice_deviation: The standard deviation of a choice's effect on a part, as a logarithm.
            growing_share: The share of the first amount that is expected to grow with the sizes.
            bend: With 1 the two parts add up; the larger it is, the more the smaller part hides behind the larger one.
            ignored: The parameters that do not change the amount.
            exceeding: Configs that need more than 1.0, such as more than all memory.
            prior: The model of a similar case.
        """
        self._features, self._bend = Features(space, ignored), bend
        self._measured = self._features.matrices(configs)
        self._amounts = np.log(np.asarray(amounts, dtype=float))
        """The logarithms of the measured amounts."""
        self._split = self._measured.fixed.shape[1]
        """The number of parameters of the fixed part. Those of the growing part follow them."""
        self._expected, covariance = self._prior(choice_deviation, growing_share, prior)
        self._precision = np.linalg.inv(covariance)
        # First without the configs that exceed 1.0: this fit says how much they are likely to need.
        self._exceeding, self._exceeding_amounts = self._features.matrices(()), np.zeros(0)
        self._learn(error)
        if exceeding:
            self._exceeding = self._features.matrices(exceeding)
            self._exceeding_amounts = _truncated_means(math.log(1.05), self._predict(self._exceeding))  # 5 % above 1.0
            self._learn(error)

    def _learn(self, error: float) -> None:
        """Fit the parameters, and compute their covariance.

        `error`: the standard error of a measurement. It is multiplied by the misfit, the root mean square of the
        standardised residuals, where that is above 1.
        """
        self._error = error
        self._fitted = self._most_probable()
        means, slopes = self._logarithms(self._fitted, self._measured)
        misfit = float(np.square((means - self._amounts) / error).sum()) / max(len(self._amounts), 1)
        self._error *= max(1.0, math.sqrt(misfit))
        self._covariance = np.linalg.inv(slopes.T @ slopes / self._error**2 + self._precision)

    def logarithms(self, configs: Sequence[Config]) -> Prediction:
        """Return what is expected of the logarithm of the amount that a probe of each config will show."""
        return self._predict(self._features.matrices(configs))

    def logarithms_at(self, codes: NDArray[np.intp]) -> Prediction:
        """Return the same as `logarithms`, but fast: for rows of codes, the positions of values among all values."""
        return self._predict(self._features.matrices_of_codes(codes))

    def expect(self, configs: Sequence[Config]) -> Prediction:
        """Return what is expected of the amount that a probe of each config will show."""
        means, deviations = self.logarithms(configs)
        return Prediction(np.exp(means), np.exp(means) * deviations)

    def _predict(self, matrices: DesignMatrices) -> Prediction:
        """Return what is expected of the logarithm of each amount, the error of a measurement included."""
        means, slopes = self._logarithms(self._fitted, matrices)
        variances = np.square(slopes @ np.linalg.cholesky(self._covariance)).sum(axis=1)  # slope · covariance · slope
        return Prediction(means, np.sqrt(variances + self._error**2))

    def _prior(
        self, choice_deviation: float, growing_share: float, similar: "ResourceModel | None"
    ) -> tuple[Floats, Floats]:
        """Return mean and covariance of the parameters before the fit. `similar`: the model of a similar case.

        The order of the parameters: level and choices of the fixed part, level and choices of the growing part, and the
        power of each size. Memory is linear in `num_envs` (two H200s, MimicKit), so the power of the ladder hardly
        differs from 1.

        1. With a similar case, the mean is its fit. Similar cases differ by a common factor: on an H200,
           the pi_plus cases of two methods differed in memory by 1.5. Besides, each parameter may differ by half of
           its usual deviation.
        2. Without a similar case, both levels follow from the mean of the measured amounts, of which `growing_share`
           grows.
        """
        sizes, choice_count = self._features.sizes, self._split - 1
        no_choice = [0.0] * choice_count
        powers = [1.0 if name == self._features.ladder else 0.3 for name in sizes]
        power_deviations = [0.02 if name == self._features.ladder else 0.4 for name in sizes]
        part_deviations = [0.8, *[choice_deviation] * choice_count]  # of a level and its choices
        deviations = np.maximum([*part_deviations, *part_deviations, *power_deviations], 1e-3)  # 0 has no inverse
        # 1
        if similar is not None:
            levels = np.array([1.0, *no_choice, 1.0, *no_choice, *[0.0] * len(sizes)])
            common_factor = 0.4**2 * np.outer(levels, levels)
            return similar._fitted, similar._covariance + common_factor + np.diag((0.5 * deviations) ** 2)
        # 2
        level, growth_by_sizes = math.log(0.5), 0.0
        if len(self._amounts):
            level = float(self._amounts.mean())
            growth_by_sizes = float((self._measured.growing[:, self._split :] @ np.array(powers)).mean())
        mean = np.array([level, *no_choice, level - growth_by_sizes, *no_choice, *powers])
        mean[0] += math.log(1.0 - growing_share) / self._bend
        mean[self._split] += math.log(growing_share) / self._bend
        return mean, np.diag(deviations**2)

    def _most_probable(self) -> Floats:
        """Return the most probable parameters, by at most 40 steps of Levenberg and Marquardt."""
        parameters, damping = self._expected.copy(), 1e-3
        local = self._quadratic_model(parameters)
        for _ in range(40):
            damped = local.curvature + damping * np.diag(np.diag(local.curvature))
            moved = parameters + np.linalg.solve(damped, -local.gradient)
            moved_local = self._quadratic_model(moved)
            if moved_local.cost < local.cost:  # a step that helps: take it, and try a longer step next
                has_converged = local.cost - moved_local.cost < 1e-6 * (1.0 + local.cost)
                parameters, local, damping = moved, moved_local, damping / 10.0
            else:  # a step too far: try a shorter step
                damping *= 10.0
                has_converged = damping > 1e8
            if has_converged:
                break
        return parameters

    def _quadratic_model(self, parameters: Floats) -> "_QuadraticModel":
        """Return how badly some parameters fit, with the gradient and the curvature there, for a step of the fit.

        A config that exceeds 1.0 should need at least its `_exceeding_amounts`. To expect even more costs nothing.

        `parameters`: in the order of `_prior`.
        """
        # The measured amounts, and the prior.
        means, slopes = self._logarithms(parameters, self._measured)
        residuals, departure = (self._amounts - means) / self._error, parameters - self._expected
        cost = float(residuals @ residuals + departure @ self._precision @ departure) / 2.0
        gradient = self._precision @ departure - slopes.T @ residuals / self._error
        curvature = slopes.T @ slopes / self._error**2 + self._precision
        # The configs that exceed 1.0.
        if len(self._exceeding_amounts):
            means, slopes = self._logarithms(parameters, self._exceeding)
            error = 0.05  # how exactly the amount of such a config is known, as a logarithm
            residuals = np.maximum(0.0, self._exceeding_amounts - means) / error
            slopes = slopes * (residuals > 0.0)[:, None]
            cost += float(residuals @ residuals) / 2.0
            gradient = gradient - slopes.T @ residuals / error
            curvature = curvature + slopes.T @ slopes / error**2
        return _QuadraticModel(cost, gradient, curvature)

    def _logarithms(self, parameters: Floats, matrices: DesignMatrices) -> tuple[Floats, Floats]:
        """Return the logarithm of each amount, and its derivatives by the parameters: config by parameter."""
        fixed = matrices.fixed @ parameters[: self._split]
        growing = matrices.growing @ parameters[self._split :]
        total = np.logaddexp(self._bend * fixed, self._bend * growing) / self._bend
        growing_share = np.exp(self._bend * (growing - total))[:, None]
        return total, np.column_stack([(1.0 - growing_share) * matrices.fixed, growing_share * matrices.growing])


class _QuadraticModel(NamedTuple):
    """How badly some parameters fit, and how that changes near them."""

    cost: float
    """Half the squared misfit."""
    gradient: Floats
    """The derivatives of the cost by the parameters."""
    curvature: Floats
    """The second derivatives, by Gauss and Newton's approximation."""


def _truncated_means(least: float, normal: Prediction) -> Floats:
    """Return the means of normal distributions that are truncated from below, at `least`.

    `normal`: mean and standard deviation of each distribution before it is truncated.
    """
    deviations_below = (least - normal.mean) / normal.deviation
    tail = np.array([0.5 * math.erfc(distance / math.sqrt(2.0)) for distance in deviations_below])
    density = np.exp(-0.5 * deviations_below**2) / math.sqrt(2.0 * math.pi)
    ratio = density / np.maximum(tail, 1e-12)
    # Beyond 5 deviations the ratio is inexact, and the mean is hardly above `least`.
    return np.where(deviations_below < 5.0, normal.mean + normal.deviation * ratio, least)


def fitted_after_siblings(
    space: Space, known: Sequence[Amounts], *, exceeding: Sequence[Config] = (), **settings: Any
) -> ResourceModel | None:
    """Return the model of the memory or time that a case needs, with what similar cases have measured as the prior.

    The cases are fitted in turn, the case itself last. Each has the model of the case before as its prior. None where
    nothing was measured in any case, and no config exceeds 1.0.

    Args:
        space: The space of the case.
        known: The measured amounts of each similar case, and then of the case itself.
        exceeding: The configs of the case itself that need more than 1.0.
        **settings: What is known of the amount before any measurement, such as its `error`: as `ResourceModel` has it.
    """
    model = None
    for number, (configs, amounts) in enumerate(known, start=1):
        exceeding_here = exceeding if number == len(known) else ()
        if configs or exceeding_here or model:  # else nothing is known yet to fit
            model = ResourceModel(space, configs, amounts, exceeding=exceeding_here, prior=model, **settings)
    return model


def _is_size(parameter: Parameter) -> bool:
    """Return whether a parameter is a size, whose power can be fitted, rather than a choice.

    A size has positive numbers alone. Two numbers are a choice, like a switch, unless they are the rungs.
    """
    numbers = list(filter(is_number, parameter.values))
    if len(numbers) < len(parameter.values) or any(number <= 0 for number in numbers):
        return False
    return parameter.is_ladder or len(numbers) > 2


def _logarithm(value: object) -> float:
    """Return the logarithm of a positive number; 0 for anything else, which has no effect as a size."""
    return math.log(float(value)) if isinstance(value, int | float) and value > 0 else 0.0


class Interval(NamedTuple):
    """An expected value, and the interval that holds the true value with 90 % probability."""

    mean: float
    low: float
    high: float


class ExpectedResources(NamedTuple):
    """The memory and the speed that are expected of a config; each is None where no probe has measured any."""

    memory_share: Interval | None
    """The share of a device's memory at its peak."""
    samples_per_s: Interval | None


def expected_resources(
    space: Space, trials: Sequence[TrialRecord], configs: Sequence[Config]
) -> list[ExpectedResources]:
    """Return the memory and the speed that are expected of each config, by the trials that ran.

    Memory and the time of an iteration are each predicted by a `ResourceModel`: a fixed part, and a part that grows
    with the rung. The speed follows from the time.
    """
    ran = [trial for trial in trials if trial.state == COMPLETE and not trial.soaks]
    ladder = ladder_of(space)

    def rung(config: Config) -> float:
        """Return the rung of a config; 1 without a ladder."""
        return float(config.get(ladder, 1)) if ladder else 1.0

    shares = [(launched(trial.config), trial.memory_share_pct / 100.0) for trial in ran if trial.memory_share_pct]
    # An iteration has samples in proportion to the rung. So rung / speed is its time, up to a constant factor.
    times = [(launched(trial.config), rung(trial.config) / trial.samples_per_s) for trial in ran if trial.samples_per_s]
    expected_shares = _expected(space, shares, configs, ignored=MEMORYLESS, error=0.004, choice_deviation=0.25)
    expected_times = _expected(space, times, configs, error=0.15, choice_deviation=0.5, bend=1.5)
    resources: list[ExpectedResources] = []
    for config, share, time in zip(configs, expected_shares, expected_times, strict=True):
        samples = rung(config)  # of an iteration, divided by the same factor
        speed = Interval(samples / time.mean, samples / time.high, samples / time.low) if time else None
        resources.append(ExpectedResources(memory_share=share, samples_per_s=speed))
    return resources


def _expected(
    space: Space, measured: Sequence[tuple[Config, float]], configs: Sequence[Config], **settings: Any
) -> Sequence[Interval | None]:
    """Return the amount that each config is expected to need, as an interval; None for each where nothing was measured.

    Args:
        space: The parameters, which say what is a size and what is a choice.
        measured: Each config that was measured, and its amount.
        configs: The configs of which an amount is expected.
        **settings: What is known of the amount before any measurement, such as its `error`: as `ResourceModel` has it.
    """
    if not measured:
        return [None] * len(configs)
    tried, amounts = zip(*measured, strict=True)
    means, deviations = ResourceModel(space, tried, amounts, **settings).logarithms(configs)
    ends = np.exp(means + 1.645 * np.outer([0.0, -1.0, 1.0], deviations))  # 90 % of a normal distribution
    return [Interval(mean=mean, low=low, high=high) for mean, low, high in ends.T.tolist()]
