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
    """Makes the columns of numbers that a model computes an amount from: what the fixed and the growing part depend on.

    An amount is such as the memory or the seconds that a config needs.
    """

    def __init__(self, space: Space, ignored: Collection[str] = ()) -> None:
        """Sort the parameters of a space into sizes, which scale the growing part of an amount, and choices.

        `ignored`: the parameters that do not change the amount.
        """
        self.ladder = ladder_of(space)
        self.sizes: list[str] = []
        """The parameters whose numbers scale the growing part."""
        self.choices: list[tuple[str, Value]] = []
        """Parameter and value, for each value but the first of all other parameters."""
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
        """Name → the column of the parameter among the space's, and its values."""

    def columns(self, configs: Sequence[Config]) -> Columns:
        """Return the columns of configs.

        The fixed part has a 1, and for each choice 1 or 0: whether the config has it. The growing part also has the
        logarithm of each size as a multiple of the middle size; 0 for a size that the config does not use.
        """
        chosen, sizes = np.zeros((len(configs), len(self.choices))), np.zeros((len(configs), len(self.sizes)))
        for row, config in enumerate(configs):
            chosen[row] = [config.get(name) == value for name, value in self.choices]
            sizes[row] = [self._relative_size(name, config[name]) if name in config else 0.0 for name in self.sizes]
        fixed = np.column_stack([np.ones(len(configs)), chosen])
        return Columns(fixed, np.column_stack([fixed, sizes]))

    def columns_at(self, codes: NDArray[np.intp]) -> Columns:
        """Return the same as `columns` for configs given by the places of their values: see `gain.pool.Levels`."""
        fixed = np.ones((len(codes), 1 + len(self.choices)))
        for column, (name, value) in enumerate(self.choices, start=1):
            at, values = self._parameters[name]
            fixed[:, column] = codes[:, at] == values.index(value)
        sizes = np.zeros((len(codes), len(self.sizes)))
        for column, name in enumerate(self.sizes):
            at, values = self._parameters[name]
            of_code = [*(self._relative_size(name, value) for value in values), 0.0]  # 0: the size is not used
            sizes[:, column] = np.array(of_code)[codes[:, at]]
        return Columns(fixed, np.column_stack([fixed, sizes]))

    def _relative_size(self, name: str, value: Value) -> float:
        """Return the logarithm of a size as a multiple of the parameter's middle size."""
        return _logarithm(value) - self._middle[name]


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
        self._split = known.fixed.shape[1]
        """The number of parameters of the fixed part. Those of the growing part follow them."""
        wanted = np.log(np.asarray(amounts, dtype=float))
        self._expected, covariance = self._prior_of(prior, wanted, known.growing, choices, grown)
        self._precision = np.linalg.inv(covariance)
        # First without the configs that are over: this fit says how much they are likely to need.
        self._error, self._needs_of_over = error, np.zeros(0)
        self._learn(known, wanted, self._terms.columns(()))
        if over:
            self._needs_of_over = _means_above(math.log(1.05), self._predict(beyond))  # 5 % more than there is
            self._error = error  # the first fit may have widened it
            self._learn(known, wanted, beyond)

    def _learn(self, known: Columns, wanted: Floats, over: Columns) -> None:
        """Fit the parameters, widen the error by the misfit, and compute the covariance at the fit.

        Args:
            known: The configs that were measured.
            wanted: The logarithm of the amount of each of them.
            over: The configs that need more than 1.0.
        """
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
        variances = np.square(slopes @ np.linalg.cholesky(self._covariance)).sum(axis=1)  # slope · covariance · slope
        return Prediction(means, np.sqrt(variances + self._error**2))

    def _prior_of(
        self, prior: "Growth | None", wanted: Floats, growing: Floats, choices: float, grown: float
    ) -> tuple[Floats, Floats]:
        """Return mean and covariance of the parameters before the fit.

        The order of the parameters: level and choices of the fixed part, level and choices of the growing part, and the
        power of each size. Memory is linear in `num_envs` (two H200s, MimicKit), so the power of the ladder hardly
        differs from 1.

        1. With a prior, the mean is the fit of the similar case. Similar cases differ by a common factor: on an H200,
           the pi_plus cases of two methods differed in memory by 1.5. Besides, each parameter may differ by half of
           its usual deviation.
        2. Without a prior, both levels follow from the mean of the measured amounts, of which `grown` grows.
        """
        sizes, choice_count = self._terms.sizes, self._split - 1
        no_choice = [0.0] * choice_count
        powers = [1.0 if name == self._terms.ladder else 0.3 for name in sizes]
        power_deviations = [0.02 if name == self._terms.ladder else 0.4 for name in sizes]
        of_choices = [choices] * choice_count
        deviations = np.maximum([0.8, *of_choices, 0.8, *of_choices, *power_deviations], 1e-3)  # 0 has no inverse
        # 1
        if prior is not None:
            levels = np.array([1.0, *no_choice, 1.0, *no_choice, *[0.0] * len(sizes)])
            common_factor = 0.4**2 * np.outer(levels, levels)
            return prior._fitted, prior._covariance + common_factor + np.diag((0.5 * deviations) ** 2)
        # 2
        level = float(wanted.mean()) if len(wanted) else math.log(0.5)
        growth_by_sizes = growing[:, self._split :] @ np.array(powers) if len(sizes) and len(wanted) else np.zeros(1)
        mean = np.array([level, *no_choice, level - float(growth_by_sizes.mean()), *no_choice, *powers])
        mean[0] += math.log(1.0 - grown) / self._bend
        mean[self._split] += math.log(grown) / self._bend
        return mean, np.diag(deviations**2)

    def _fit(self, known: Columns, wanted: Floats, over: Columns) -> Floats:
        """Return the most probable parameters, by at most 40 steps of Levenberg and Marquardt."""
        parameters, damping = self._expected.copy(), 1e-3
        local = self._quadratic_model(parameters, known, wanted, over)
        for _ in range(40):
            damped = local.curvature + damping * np.diag(np.diag(local.curvature))
            moved = parameters + np.linalg.solve(damped, -local.gradient)
            moved_local = self._quadratic_model(moved, known, wanted, over)
            if moved_local.cost < local.cost:  # a step that helps: take it, and dare a longer step
                has_converged = local.cost - moved_local.cost < 1e-6 * (1.0 + local.cost)
                parameters, local, damping = moved, moved_local, damping / 10.0
            else:  # a step too far: try a shorter step
                damping *= 10.0
                has_converged = damping > 1e8
            if has_converged:
                break
        return parameters

    def _quadratic_model(self, parameters: Floats, known: Columns, wanted: Floats, over: Columns) -> "_QuadraticModel":
        """Return how badly some parameters fit, with the gradient and the curvature there, for a step of the fit.

        A config of `over` should need at least `_needs_of_over`. To expect even more of it costs nothing.

        Args:
            parameters: The parameters, in the order of `_prior_of`.
            known: The configs that were measured.
            wanted: The logarithm of the amount of each of them.
            over: The configs that need more than 1.0.
        """
        # The measured amounts, and the prior.
        means, slopes = self._logarithms(parameters, known)
        residuals, departure = (wanted - means) / self._error, parameters - self._expected
        cost = float(residuals @ residuals + departure @ self._precision @ departure) / 2.0
        gradient = self._precision @ departure - slopes.T @ residuals / self._error
        curvature = slopes.T @ slopes / self._error**2 + self._precision
        # The configs that are over.
        if len(over.fixed):
            means, slopes = self._logarithms(parameters, over)
            error = 0.05  # how exactly the amount of such a config is known, as a logarithm
            residuals = np.maximum(0.0, self._needs_of_over - means) / error
            slopes = slopes * (residuals > 0.0)[:, None]
            cost += float(residuals @ residuals) / 2.0
            gradient = gradient - slopes.T @ residuals / error
            curvature = curvature + slopes.T @ slopes / error**2
        return _QuadraticModel(cost, gradient, curvature)

    def _logarithms(self, parameters: Floats, configs: Columns) -> tuple[Floats, Floats]:
        """Return the logarithm of each amount, and its derivatives by the parameters: config by parameter."""
        fixed = configs.fixed @ parameters[: self._split]
        growing = configs.growing @ parameters[self._split :]
        total = np.logaddexp(self._bend * fixed, self._bend * growing) / self._bend
        growing_share = np.exp(self._bend * (growing - total))[:, None]
        return total, np.column_stack([(1.0 - growing_share) * configs.fixed, growing_share * configs.growing])


class _QuadraticModel(NamedTuple):
    """How badly some parameters fit, and how that changes near them."""

    cost: float
    """Half the squared misfit."""
    gradient: Floats
    """The derivatives of the cost by the parameters."""
    curvature: Floats
    """The second derivatives, by Gauss and Newton's approximation."""


def _means_above(least: float, normal: Prediction) -> Floats:
    """Return the means of normal variables that are known to be above `least`.

    These are the means of normal distributions that are truncated from below.

    Args:
        least: The bound that each variable is above.
        normal: Mean and standard deviation of each variable without this knowledge.
    """
    deviations_below = (least - normal.mean) / normal.deviation
    tail = np.array([0.5 * math.erfc(distance / math.sqrt(2.0)) for distance in deviations_below])
    density = np.exp(-0.5 * deviations_below**2) / math.sqrt(2.0 * math.pi)
    ratio = density / np.maximum(tail, 1e-12)
    # Beyond 5 deviations the ratio is inexact, and the mean is hardly above `least`.
    return np.where(deviations_below < 5.0, normal.mean + normal.deviation * ratio, least)


def inherited(space: Space, known: Sequence[Amounts], *, over: Sequence[Config] = (), **settings: Any) -> Growth | None:
    """Fit the memory or time that configs of a case need, with what similar cases have measured as the prior.

    The cases are fitted in turn. Each case has the model of the case before as its prior, and the model of the last
    case is returned. None where nothing was measured in any case, and the last case has no config that is over.

    Args:
        space: The space of the last case.
        known: The measured amounts of each case.
        over: The configs of the last case that need more than 1.0.
        **settings: See `Growth`.
    """
    growth = None
    for place, (configs, amounts) in enumerate(known):
        is_last = place == len(known) - 1
        over_here = over if is_last else ()
        if configs or over_here or growth:  # else nothing is known yet to fit
            growth = Growth(space, configs, amounts, over=over_here, prior=growth, **settings)
    return growth


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
    # The time of an iteration, up to a constant factor: its samples are proportional to the rung.
    times = [(launched(trial.config), rung(trial.config) / trial.samples_per_s) for trial in ran if trial.samples_per_s]
    expected_shares = _expected(space, shares, configs, ignored=MEMORYLESS, error=0.004, choices=0.25)
    expected_times = _expected(space, times, configs, error=0.15, choices=0.5, bend=1.5)
    foreseen: list[Foreseen] = []
    for config, share, time in zip(configs, expected_shares, expected_times, strict=True):
        samples = rung(config)  # of an iteration, up to the same factor
        speed = Interval(samples / time.mean, samples / time.high, samples / time.low) if time else None
        foreseen.append(Foreseen(memory_share=share, samples_per_s=speed))
    return foreseen


def _expected(
    space: Space, measured: Sequence[tuple[Config, float]], configs: Sequence[Config], **settings: Any
) -> Sequence[Interval | None]:
    """Return the amount that each config is expected to need, as an interval; None for each where nothing was measured.

    Args:
        space: See `Growth`.
        measured: Each config that was measured, and its amount.
        configs: The configs of which an amount is expected.
        **settings: See `Growth`.
    """
    if not measured:
        return [None] * len(configs)
    tried, amounts = zip(*measured, strict=True)
    means, deviations = Growth(space, tried, amounts, **settings).logarithms(configs)
    ends = np.exp(means + 1.645 * np.outer([0.0, -1.0, 1.0], deviations))  # 90 % of a normal distribution
    return [Interval(mean=mean, low=low, high=high) for mean, low, high in ends.T.tolist()]
