"""Models of the memory and the time that configs need: a fixed part and a part that grows with sizes. Pure."""

import math
from collections.abc import Collection, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tuner.search.frontier import is_number
from tuner.study import PATIENCE, Config, Parameter, Space, Value, ladder_of

Floats = NDArray[np.float64]


class Prediction(NamedTuple):
    """What a model expects of some configs, one number for each."""

    mean: Floats
    deviation: Floats
    """The standard deviations."""


Amounts = tuple[Sequence[Config], Sequence[float]]
"""Configs of one case, and the amount that was measured for each."""


OVER = 1.05
"""What a config that ran out needs at least: 5 % more than there is."""
POWERS = (-0.5, 0.0, 0.5)
"""The power with which a size is expected to act on each of the three parts of a shared amount."""


def shares_sizes(space: Space) -> bool:
    """Return whether several sizes share and multiply amounts, as degrees of parallelism and a micro-batch do.

    They may where at least two parameters have positive numbers alone, and none is the ladder.
    """
    return ladder_of(space) is None and sum(map(_is_positive, space.parameters)) > 1


class Terms:
    """Makes the columns of numbers that a model computes an amount from: what the fixed and the growing part depend on.

    An amount is such as the memory or the seconds that a config needs.
    """

    def __init__(self, space: Space, ignored: Collection[str] = (), *, shared: bool = False) -> None:
        """Sort the parameters of a space into sizes, which scale the growing part of an amount, and choices.

        Where sizes share the amount, two positive numbers are a size too, and no value of a choice is the usual one.

        Args:
            space: The parameters.
            ignored: The parameters that do not change the amount.
            shared: Whether sizes share the amount: see `shares_sizes`.
        """
        self.ladder = ladder_of(space)
        self.sizes: list[str] = []
        """The parameters whose numbers scale the growing part."""
        self.choices: list[tuple[str, Value]] = []
        """Parameter and value, for each value of all other parameters but the usual one, which is the first."""
        self._middle: dict[str, float] = {}
        """Size → the logarithm of its middle value, or of its geometric mean where sizes share the amount."""
        for parameter in space.parameters:
            if parameter.name in ignored or parameter.name == PATIENCE:
                continue
            if _is_size(parameter) or (shared and _is_positive(parameter)):
                self.sizes.append(parameter.name)
                logarithms = list(map(_logarithm, parameter.values))
                self._middle[parameter.name] = fmean(logarithms) if shared else logarithms[len(logarithms) // 2]
            else:
                self.choices += [(parameter.name, value) for value in parameter.values[0 if shared else 1 :]]
        self._parameters = {parameter.name: (at, parameter.values) for at, parameter in enumerate(space.parameters)}
        """Name → the column of the parameter among the space's, and its values."""

    def columns(self, configs: Sequence[Config]) -> Floats:
        """Return the columns of configs.

        There is a 1, and for each choice 1 or 0: whether the config has it. The logarithm of each size as a multiple of
        the middle size follows; 0 for a size that the config does not use. A fixed part does not depend on sizes.
        """
        chosen, sizes = np.zeros((len(configs), len(self.choices))), np.zeros((len(configs), len(self.sizes)))
        for row, config in enumerate(configs):
            chosen[row] = [config.get(name) == value for name, value in self.choices]
            sizes[row] = [self._relative_size(name, config[name]) if name in config else 0.0 for name in self.sizes]
        return np.column_stack([np.ones(len(configs)), chosen, sizes])

    def columns_at(self, codes: NDArray[np.intp]) -> Floats:
        """Return the same as `columns` for configs given by the places of their values: see `gain.pool.Levels`."""
        chosen = np.zeros((len(codes), len(self.choices)))
        for column, (name, value) in enumerate(self.choices):
            at, values = self._parameters[name]
            chosen[:, column] = codes[:, at] == values.index(value)
        sizes = np.zeros((len(codes), len(self.sizes)))
        for column, name in enumerate(self.sizes):
            at, values = self._parameters[name]
            of_code = [*(self._relative_size(name, value) for value in values), 0.0]  # 0: the size is not used
            sizes[:, column] = np.array(of_code)[codes[:, at]]
        return np.column_stack([np.ones(len(codes)), chosen, sizes])

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
        shared: bool = False,
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
            shared: Whether several sizes share the amount: see `shares_sizes`. Each of three parts then may grow and
                shrink with each size, such as weights with the degrees of parallelism. `grown` says nothing then.
            ignored: The parameters that do not change the amount.
            over: Configs that need more than 1.0, such as more than all memory.
            prior: The model of a similar case.
        """
        self._terms, self._bend, self._shared = Terms(space, ignored, shared=shared), bend, shared
        known = self._terms.columns(configs)
        self._split = 1 + len(self._terms.choices)
        """The number of parameters of the fixed part. Those of the growing part follow them."""
        wanted = np.log(np.asarray(amounts, dtype=float))
        self._expected, covariance = self._prior_of(prior, wanted, known, choices, grown)
        self._precision = np.linalg.inv(covariance)
        # First without the configs that are over: this fit says how much they are likely to need.
        self._error = error
        self._learn(known, wanted, np.zeros(0))
        if over:
            means, slopes = self._logarithms(self._fitted, self._terms.columns(over))
            covariance = slopes @ self._covariance @ slopes.T + self._error**2 * np.eye(len(over))
            needs, errors = _as_measured(math.log(OVER), means, covariance)
            self._error = error  # the first fit may have widened it
            self._learn(self._terms.columns([*configs, *over]), np.concatenate([wanted, needs]), errors)

    def _learn(self, known: Floats, wanted: Floats, errors_of_over: Floats) -> None:
        """Fit the parameters, widen the error by the misfit, and compute the covariance at the fit.

        Args:
            known: The configs that were measured, then those that are over.
            wanted: The logarithm of the amount of each of them.
            errors_of_over: How exactly the amount of each config that is over is known.
        """
        count = len(wanted) - len(errors_of_over)
        errors = np.concatenate([np.full(count, self._error), errors_of_over])
        self._fitted = self._fit(known, wanted, errors)
        means, slopes = self._logarithms(self._fitted, known)
        misfit = float(np.square((means - wanted) / errors)[:count].sum()) / max(count, 1)
        self._error *= max(1.0, math.sqrt(misfit))
        errors[:count] = self._error
        self._covariance = np.linalg.inv((slopes / errors[:, None] ** 2).T @ slopes + self._precision)

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

    def _predict(self, columns: Floats) -> Prediction:
        """Return what is expected of the logarithm of each amount, the error of a measurement included."""
        means, slopes = self._logarithms(self._fitted, columns)
        variances = np.square(slopes @ np.linalg.cholesky(self._covariance)).sum(axis=1)  # slope · covariance · slope
        return Prediction(means, np.sqrt(variances + self._error**2))

    def _prior_of(
        self, prior: "Growth | None", wanted: Floats, known: Floats, choices: float, grown: float
    ) -> tuple[Floats, Floats]:
        """Return mean and covariance of the parameters before the fit.

        The order of the parameters: level and choices of the fixed part, level and choices of the growing part, and the
        power of each size. Memory is linear in `num_envs` (two H200s, MimicKit), so the power of the ladder hardly
        differs from 1. Where sizes share the amount, each of three parts has a level, choices and powers.
        Each item of `parts` has a level, the powers of the sizes, and the deviations of these powers.

        1. Without a prior, the levels follow from the mean of the measured amounts, of which `grown` grows.
        2. With a prior, the mean is the fit of the similar case. Similar cases differ by a common factor: on an H200,
           the pi_plus cases of two methods differed in memory by 1.5. Besides, each parameter may differ by half of
           its usual deviation.
        """
        sizes, no_choice = self._terms.sizes, [0.0] * (self._split - 1)
        level = float(wanted.mean()) if len(wanted) else math.log(0.5)
        if self._shared:
            each = level - math.log(len(POWERS))
            parts = [(each, [power] * len(sizes), [0.8] * len(sizes)) for power in POWERS]
        else:
            powers = [1.0 if name == self._terms.ladder else 0.3 for name in sizes]
            deviations = [0.02 if name == self._terms.ladder else 0.4 for name in sizes]
            growth = known[:, self._split :] @ np.array(powers) if len(sizes) and len(wanted) else np.zeros(1)
            growing_level = level - float(growth.mean()) + math.log(grown) / self._bend
            parts = [(level + math.log(1.0 - grown) / self._bend, [], []), (growing_level, powers, deviations)]
        usual = [number for *_, powers in parts for number in (0.8, *[choices] * len(no_choice), *powers)]
        deviations = np.maximum(usual, 1e-3)  # 0 has no inverse
        if prior is None:
            mean = [number for part in parts for number in (part[0], *no_choice, *part[1])]
            return np.array(mean), np.diag(deviations**2)
        is_level = np.array([number for part in parts for number in (1.0, *no_choice, *[0.0] * len(part[1]))])
        common_factor = 0.4**2 * np.outer(is_level, is_level)
        return prior._fitted, prior._covariance + common_factor + np.diag((0.5 * deviations) ** 2)

    def linearised_at(self, codes: NDArray[np.intp]) -> tuple[Floats, Floats]:
        """Return what a model linear in its parameters expects of configs before any measurement.

        The model is the tangent at the fit, without a `prior`.

        Returns:
            The logarithm of each amount, and how far each parameter moves it by one of its deviations: config by
            parameter.
        """
        total, slopes = self._logarithms(self._fitted, self._terms.columns_at(codes))
        deviations = 1.0 / np.sqrt(self._precision.diagonal())
        return total - slopes @ (self._fitted - self._expected), slopes * deviations

    def _fit(self, known: Floats, wanted: Floats, errors: Floats) -> Floats:
        """Return the most probable parameters, by at most 40 steps of Levenberg and Marquardt."""
        parameters, damping = self._expected.copy(), 1e-3
        local = self._quadratic_model(parameters, known, wanted, errors)
        for _ in range(40):
            damped = local.curvature + damping * np.diag(np.diag(local.curvature))
            moved = parameters + np.linalg.solve(damped, -local.gradient)
            moved_local = self._quadratic_model(moved, known, wanted, errors)
            if moved_local.cost < local.cost:  # a step that helps: take it, and dare a longer step
                has_converged = local.cost - moved_local.cost < 1e-6 * (1.0 + local.cost)
                parameters, local, damping = moved, moved_local, damping / 10.0
            else:  # a step too far: try a shorter step
                damping *= 10.0
                has_converged = damping > 1e8
            if has_converged:
                break
        return parameters

    def _quadratic_model(self, parameters: Floats, known: Floats, wanted: Floats, errors: Floats) -> "_QuadraticModel":
        """Return how badly some parameters fit, with the gradient and the curvature there, for a step of the fit.

        Args:
            parameters: The parameters, in the order of `_prior_of`.
            known: The configs whose amount is known.
            wanted: The logarithm of the amount of each of them.
            errors: The standard error of each of these.
        """
        means, slopes = self._logarithms(parameters, known)
        residuals, departure = (wanted - means) / errors, parameters - self._expected
        slopes = slopes / errors[:, None]
        cost = float(residuals @ residuals + departure @ self._precision @ departure) / 2.0
        gradient = self._precision @ departure - slopes.T @ residuals
        curvature = slopes.T @ slopes + self._precision
        return _QuadraticModel(cost, gradient, curvature)

    def _logarithms(self, parameters: Floats, configs: Floats) -> tuple[Floats, Floats]:
        """Return the logarithm of each amount, and its derivatives by the parameters: config by parameter."""
        columns = [configs] * len(POWERS) if self._shared else [configs[:, : self._split], configs]
        ends = np.cumsum([part.shape[1] for part in columns])[:-1]
        parts = [part @ of_part for part, of_part in zip(columns, np.split(parameters, ends), strict=True)]
        total = np.logaddexp.reduce(self._bend * np.array(parts)) / self._bend
        shares = [np.exp(self._bend * (part - total))[:, None] for part in parts]
        return total, np.column_stack([share * part for share, part in zip(shares, columns, strict=True)])


class _QuadraticModel(NamedTuple):
    """How badly some parameters fit, and how that changes near them."""

    cost: float
    """Half the squared misfit."""
    gradient: Floats
    """The derivatives of the cost by the parameters."""
    curvature: Floats
    """The second derivatives, by Gauss and Newton's approximation."""


def _as_measured(least: float, means: Floats, covariance: Floats) -> tuple[Floats, Floats]:
    """Return measurements that say as much as to know that jointly normal variables are above `least`.

    Each variable in turn is a normal distribution that is truncated from below. The measurement that would give the
    same mean and variance is assumed, and the others learn from it (assumed density filtering: Minka, "A family of
    algorithms for approximate Bayesian inference", 2001).

    Returns:
        The values that are assumed to be measured, and their standard errors.
    """
    means, covariance = means.copy(), covariance.copy()
    values, errors = np.zeros(len(means)), np.zeros(len(means))
    for at in range(len(means)):
        variance = covariance[at, at]
        below = (least - means[at]) / math.sqrt(variance)
        # The ratio of density and tail, which has a simple form far out.
        tail = math.sqrt(math.pi / 2.0) * math.erfc(below / math.sqrt(2.0))
        ratio = math.exp(-0.5 * below**2) / tail if below < 5.0 else below + 1.0 / below - 2.0 / below**3
        narrowed = max(ratio * (ratio - below), 1e-9)  # the share of the variance that is lost
        error = variance * (1.0 / narrowed - 1.0)  # of the measurement
        values[at] = means[at] + math.sqrt(variance) * ratio / narrowed
        errors[at] = math.sqrt(error)
        gain = covariance[:, at] / (variance + error)
        means = means + gain * (values[at] - means[at])
        covariance = covariance - np.outer(gain, covariance[at])
    return values, errors


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
    return _is_positive(parameter) and (parameter.is_ladder or len(parameter.values) > 2)


def _is_positive(parameter: Parameter) -> bool:
    """Return whether a parameter has several values, all of them positive numbers."""
    return len(parameter.values) > 1 and all(is_number(value) and value > 0 for value in parameter.values)


def _logarithm(value: object) -> float:
    """Return the logarithm of a positive number; 0 for anything else, which has no effect as a size."""
    return math.log(float(value)) if isinstance(value, int | float) and value > 0 else 0.0
