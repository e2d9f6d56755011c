"""Predicts values from a bounded number of measurements, also of similar cases, by covariances of configs. Pure."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tuner.search.gain.pool import Codes, Levels
from tuner.search.gain.readings import Readings
from tuner.search.resource_model import Floats, Prediction

Cache = dict[tuple[int, tuple[int, ...], bytes, Callable[[Floats], Floats]], Floats]
"""Parameter, shape and bytes of its length scales, and kind of covariance → the covariances: … by row by column."""


class Nearness(NamedTuple):
    """How near each config of one list, the rows, is to each config of another list, the columns, by their values."""

    squares: Sequence[Floats]
    """For each parameter, the squared distance of each of its values to each column: value by column."""
    codes: Codes
    """The values of the rows: row by parameter."""
    cache: Cache | None = None
    """Where given: keeps the covariances that have been computed."""

    def covariance(self, parameter: int, lengths: Floats, kernel: Callable[[Floats], Floats]) -> Floats:
        """Return the covariance of rows and columns by one parameter: … by row by column.

        A parameter has few values, so the covariance is computed once for each value and looked up for each row.

        Args:
            parameter: The index of the parameter.
            lengths: The length scale of each parameter, as a share of its range: … by parameter.
            kernel: Returns the covariances of squared distances, which are given in length scales.
        """
        scales = lengths[..., parameter, None, None]
        key = parameter, scales.shape, scales.tobytes(), kernel
        if self.cache is not None and key in self.cache:
            return self.cache[key]
        of_values = kernel(self.squares[parameter] / scales**2)
        result = of_values.take(self.codes[:, parameter], axis=-2)
        if self.cache is not None:
            self.cache[key] = result
        return result

    def filled(self, value: float, lengths: Floats) -> Floats:
        """Return an array with this value everywhere, of the shape of the covariances with these length scales."""
        return np.full((*lengths.shape[:-1], len(self.codes), self.squares[0].shape[1]), value)


def single_effects(nearness: Nearness, lengths: Floats, variances: Floats) -> Floats:
    """Return the covariance of the effects of single parameters, which have these variances: … by parameter."""
    total = nearness.filled(0.0, lengths)
    for parameter in range(lengths.shape[-1]):
        total += variances[..., parameter, None, None] * nearness.covariance(parameter, lengths, _sharp_kernel)
    return total


def pair_effects(nearness: Nearness, lengths: Floats) -> Floats:
    """Return the covariance of the effects of all pairs of parameters, each of variance 1."""
    total, squares = nearness.filled(0.0, lengths), nearness.filled(0.0, lengths)
    for parameter in range(lengths.shape[-1]):
        single = nearness.covariance(parameter, lengths, _sharp_kernel)
        total += single
        squares += single**2
    return (total**2 - squares) / 2.0  # the sum of the products of all pairs


def common_effect(nearness: Nearness, lengths: Floats) -> Floats:
    """Return the covariance of the common effect of all parameters; 1 for equal configs."""
    product = nearness.filled(1.0, lengths)
    for parameter in range(lengths.shape[-1]):
        product *= nearness.covariance(parameter, lengths, _matern_kernel)
    return product


def equal(rows: Codes, columns: Codes) -> Floats:
    """Return 1 where a row is the same config as a column, otherwise 0."""
    same = np.ones((len(rows), len(columns)), dtype=bool)
    for row, column in zip(rows.T, columns.T, strict=True):
        same &= row[:, None] == column
    return same.astype(np.float64)


def jumping_kernel(squares: Floats) -> Floats:
    """Return Matérn's covariance of smoothness 1/2, which allows a jump, for example where a cache ends.

    `squares`: squared distances in length scales.
    """
    return np.exp(-np.sqrt(squares))


def _sharp_kernel(squares: Floats) -> Floats:
    """Return the covariance with half the length scale: single effects are sharper than the common one."""
    return _matern_kernel(4.0 * squares)


def _matern_kernel(squares: Floats) -> Floats:
    """Return Matérn's covariance of smoothness 5/2, by squared distances in length scales."""
    scaled = np.sqrt(5.0 * squares)
    return (1.0 + scaled + scaled**2 / 3.0) * np.exp(-scaled)


def informative(covariance: Floats, values: Floats, errors: Floats, most: int) -> NDArray[np.intp]:
    """Choose the measurements that a model learns from, where all of them would take too long; return their places.

    Half of them are the highest. After these, the next measurement is always the one of which least is known: its true
    value, given all chosen measurements, has the largest variance in units of its error. It reduces the entropy most,
    as in the informative vector machine (Lawrence, Seeger and Herbrich, Advances in Neural Information Processing
    Systems 15, 2003).

    Args:
        covariance: The covariance of the true values, before anything is measured.
        values: The measurements.
        errors: Their standard errors.
        most: How many measurements to choose.
    """
    if len(values) <= most:
        return np.arange(len(values))
    highest = np.argsort(-values, kind="stable")[: round(0.5 * most)]
    chosen: list[int] = []
    variance = covariance.diagonal().copy()  # of each true value, given the chosen measurements
    learnt = np.zeros((most, len(values)))  # a row per chosen measurement: the rows of a Cholesky factor
    for step in range(most):
        information = np.where(np.isin(np.arange(len(values)), chosen), -1.0, variance / errors**2)
        place = int(highest[step] if step < len(highest) else information.argmax())
        remaining = covariance[place] - learnt[:step, place] @ learnt[:step]
        learnt[step] = remaining / np.sqrt(variance[place] + errors[place] ** 2)
        variance = variance - learnt[step] ** 2
        chosen.append(place)
    return np.sort(chosen)


def with_left_out(left_out: Readings, codes: Codes, mean: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """Return mean and variance of each config's value, updated by its measurements that the model did not learn from.

    Such a measurement tells about its own config only. It is combined with the prediction, weighted by precision.

    Args:
        left_out: The measurements that the model did not learn from.
        codes: The configs: a row each, with the place of each value among those of its parameter.
        mean: The model's expected value of each config.
        variance: The variance of each value.
    """
    if not len(left_out.values):
        return mean, variance
    mean, variance = mean.copy(), variance.copy()
    places = {code.tobytes(): place for place, code in enumerate(codes)}
    noises = left_out.errors**2 + left_out.offset_covariance.diagonal()
    for code, value, noise in zip(left_out.codes, left_out.values, noises, strict=True):
        place = places.get(code.tobytes())
        if place is None:  # a measurement of another config
            continue
        share = variance[place] / (variance[place] + noise)
        mean[place] += share * (value - mean[place])
        variance[place] *= 1.0 - share
    return mean, variance


@dataclass(frozen=True, kw_only=True, slots=True)
class PriorSizes:
    """The prior of a model's hyperparameters: each has a lognormal distribution, given by median and spread.

    The sizes of the model's parts are standard deviations, as multiples of the unit of the values. A spread is the
    standard deviation of the logarithm; where it is 0, the median is used without a fit.
    """

    length: tuple[float, float] = (1.0, 0.5)
    """The length scale of an effect, as a share of its parameter's range."""
    single: tuple[float, float]
    """The effects of all single parameters together."""
    joint: tuple[float, float]
    """The common effect of all parameters, beyond their single effects."""
    own: tuple[float, float]
    """The part of a value that belongs to a single config."""
    curve: tuple[float, float]
    """The ladder's departure from its trend."""
    chance: tuple[float, float]
    """The scatter of measurements beyond their standard errors. Negligible where it is not fitted."""
    freedom: float
    """The degrees of freedom of Student's t, with which measurements scatter; infinite for the normal distribution."""
    level: float = 2.0
    """The level, and the trend over the whole ladder; both are not fitted."""


IN_PERCENT = PriorSizes(
    single=(0.7, 0.4), joint=(0.7, 0.7), own=(0.15, 0.7), curve=(1.0, 0.0), chance=(1e-6, 0.0), freedom=math.inf
)
"""For values in percent; the unit is the standard deviation of the measurements.

The curve is not fitted: most measurements lie on a few rungs.
"""
IN_LOGARITHMS = PriorSizes(
    single=(0.3, 1.2), joint=(0.1, 1.0), own=(0.01, 0.5), curve=(0.3, 0.8), chance=(0.01, 1.0), freedom=3.0
)
"""For logarithms of a speed; the unit is 1. A switch changes most speeds by some hundredths, or not at all."""
ACTING_TOGETHER = PriorSizes(
    length=(4.0, 1.0),
    single=(0.001, 0.0),
    joint=(1.0, 0.7),
    own=(0.01, 0.5),
    curve=(0.3, 0.8),
    chance=(0.01, 1.0),
    freedom=3.0,
)
"""For logarithms of a speed, where what a choice does depends on all others: there are hardly any single effects.

Length scales are long, because configs that differ in one choice are then still alike.
"""
MOST_READINGS = 120
"""The most measurements that the model learns from: the time grows with their square. See `informative`."""
_ROUNDS = 2
"""How often the hyperparameters are fitted anew, and how often a fit halves its steps."""
_AT_ONCE = 16_000
"""The most numbers in the covariances that a fit computes together: as many as a cache of the CPU holds."""
_JITTER = 1e-9
"""The share of the squared unit that is added to the diagonal of a covariance, so that it stays positive definite."""


class JointPrediction(NamedTuple):
    """What a model expects of the true values of some configs, together."""

    mean: Floats
    covariance: Floats
    """The covariance of the values: config by config."""


class _Pairs(NamedTuple):
    """What the covariance of each config of one list, the rows, with each of another, the columns, depends on."""

    nearness: Nearness
    slopes: Floats
    """The product of the heights on the ladder, measured from its middle."""
    same: Floats
    """1 where row and column are the same config, otherwise 0."""


class _Parts(NamedTuple):
    """The length scales, and the standard deviations of the parts of a value: see `PriorSizes`."""

    lengths: Floats
    singles: Floats
    """Lengths and singles: … by parameter."""
    joint: Floats
    own: Floats
    curve: Floats
    """Joint, own and curve: … by 1 by 1, to be multiplied by covariances."""


def _medians_and_spreads(usual: PriorSizes, parameters: int) -> Floats:
    """Return the medians and the spreads of the hyperparameters' prior, a row each, for this number of parameters.

    The order is that of `_Parts`: all length scales, all single effects, and the sizes of the other parts. The last one
    is the chance scatter. All single effects together have the size `usual.single`.
    """
    single = usual.single[0] / math.sqrt(parameters), usual.single[1]
    sizes = [usual.joint, usual.own, usual.curve, usual.chance]
    return np.array([usual.length] * parameters + [single] * parameters + sizes).T


def _parts(hyperparameters: Floats) -> _Parts:
    """Return the parts from the hyperparameters, logarithms in the order of `_Parts`; the chance scatter is last."""
    sizes = np.exp(hyperparameters)
    parameters = (sizes.shape[-1] - 4) // 2  # each has a length and a single effect; four numbers follow
    return _Parts(
        lengths=sizes[..., :parameters],
        singles=sizes[..., parameters:-4],
        joint=sizes[..., -4, None, None],
        own=sizes[..., -3, None, None],
        curve=sizes[..., -2, None, None],
    )


class Surrogate:
    """A Gaussian process that predicts the values of configs; a value is the sum of independent parts.

    The parts are a level, the trend of the ladder, its curve, the effects of single parameters, and the common effect
    of all parameters. One more part belongs to a single config. Length scales and sizes are fitted to the measurements
    (maximum a posteriori). Measurements beyond `MOST_READINGS` only tell about their own configs.
    """

    def __init__(
        self,
        levels: Levels,
        readings: Readings,
        source: "Surrogate | None" = None,
        prior: PriorSizes | None = None,
    ) -> None:
        """Fit the model to the measurements of a case.

        With a `source`, the model of a similar case, values are its values times a factor, plus a difference. This is
        Kennedy and O'Hagan, "Predicting the output from a complex computer code when fast approximations are
        available", 2000, equation 1.

        `prior`: that of the hyperparameters; None for the usual one of such readings.
        """
        self._levels = levels
        self._source = source

        # The prior of the hyperparameters, which are logarithms.
        usual = prior or (IN_LOGARITHMS if readings.logarithmic else IN_PERCENT)
        medians, self._prior_deviation = _medians_and_spreads(usual, readings.codes.shape[1])
        self._level, self._prior_mean = usual.level, np.log(medians)
        self._prior_scale = np.where(self._prior_deviation > 0.0, self._prior_deviation, 1.0)
        """The deviations to divide by: what has none is not fitted, and so never departs from its mean."""

        # What is to be explained: the measurements, less what the source or else their mean explains.
        self.known, self._left_out = self._split(readings)
        codes, values, error = self.known.codes, self.known.values, self.known.usual_error
        mean = float(values.mean())
        from_source = source.predict(codes).mean if source else np.zeros(len(codes))
        self._factor = mean / float(from_source.mean()) if abs(from_source.mean()) > _JITTER else 0.0
        self._mean = 0.0 if source else mean
        self._targets = values - self._factor * from_source - self._mean

        # The unit of all sizes.
        least = 0.02 if source else 0.1  # a few measurements may agree by chance
        scatter = max(float(self._targets.std()), (1.0 if source else 3.0) * error, least * readings.scale)
        self._unit = 1.0 if readings.logarithmic else scatter

        # The fit. Where measurements scatter by Student's t, the weights of measurements are fitted in turn.
        jitter = np.diag(np.full(len(codes), self._jitter))
        self._unfitted_covariance = jitter + self.known.offset_covariance + self._source_covariance(codes, codes)
        """The part of the measurements' covariance that no hyperparameter changes."""
        self._pairs = self._pairs_of(codes, codes, cache={})
        self._noise_factors = np.ones(len(codes))
        self._hyperparameters = self._maximum_a_posteriori(self._prior_mean)
        for _ in range(_ROUNDS if math.isfinite(usual.freedom) else 0):
            self._noise_factors = self._refitted_noise_factors(usual.freedom)
            self._hyperparameters = self._maximum_a_posteriori(self._hyperparameters)

        # What predictions need.
        root = self._cholesky(self._hyperparameters)
        self._weights = np.linalg.solve(root.T, np.linalg.solve(root, self._targets))
        self._whitening = np.linalg.inv(root)
        self._inflation = self._inflation_of_variances()

    def predict(self, codes: Codes) -> Prediction:
        """Return what is expected of the true value of each config."""
        mean, variance = with_left_out(self._left_out, codes, *self._model_prediction(codes))
        return Prediction(mean, np.sqrt(variance))

    def joint_prediction(self, codes: Codes) -> JointPrediction:
        """Return what is expected of the true values of the configs together."""
        covariance = self.covariance_between(codes, codes) + self._jitter * np.eye(len(codes))
        return JointPrediction(self.predict(codes).mean, covariance)

    def covariance_between(self, rows: Codes, columns: Codes) -> Floats:
        """Return the covariance of the true values of two lists of configs, given the measurements: row by column."""
        prior = self._prior_covariance(rows, np.concatenate([columns, self.known.codes]))
        learnt_of_rows = prior[:, len(columns) :] @ self._whitening.T
        learnt_of_columns = self._prior_covariance(columns, self.known.codes) @ self._whitening.T
        posterior = self._inflation * (prior[:, : len(columns)] - learnt_of_rows @ learnt_of_columns.T)
        return np.outer(self._narrowing(rows), self._narrowing(columns)) * posterior

    @property
    def measurements(self) -> float:
        """The number of measurements that the model was fitted to, those of the source cases included."""
        count = len(self.known.values) + len(self._left_out.values)
        return count + (self._source.measurements if self._source else 0.0)

    @property
    def residuals(self) -> Floats:
        """The standardised residuals: how far each measurement is above what the others predict.

        This is leave-one-out cross-validation: Rasmussen and Williams, 5.12.
        """
        return self._weights / np.sqrt(np.square(self._whitening).sum(axis=0))

    def residual(self, config: Codes) -> float:
        """Return the standardised residual of a config: how far its mean is above what other configs predict.

        The unit is the standard deviation of this difference. It is 0 where the config has no measurement that the
        model learns from. All measurements of the config are left out at once, in contrast to `residuals`.
        """
        rows = (self.known.codes == config).all(axis=1)
        if not rows.any():
            return 0.0
        # Invert the config's block of the precision matrix: this is its covariance, given all other measurements.
        whitening = self._whitening[:, rows]
        covariance = np.linalg.inv(whitening.T @ whitening)
        return float((covariance @ self._weights[rows]).mean() / np.sqrt(covariance.mean()))

    def left_out_predictions(self) -> Prediction:
        """Return, for each measurement, what all other measurements predict for the true value of its config."""
        with_noise = 1.0 / np.square(self._whitening).sum(axis=0)  # the variance of the measurement, given the others
        means = self.known.values - self._weights * with_noise
        variance = self._inflation * (with_noise - self._noise(self._hyperparameters))
        return Prediction(means, np.sqrt(np.maximum(variance, self._jitter)))

    @property
    def scatter(self) -> float:
        """The standard deviation of the scatter of a measurement beyond its standard error."""
        return self._unit * float(np.exp(self._hyperparameters[-1]))

    def _inflation_of_variances(self) -> float:
        """Return the factor, at least 1, on all predicted variances that makes the mean squared residual 1 at most.

        A single residual counts as 4 at most, and four of size 1 are assumed beside the measured ones.
        """
        squares = np.minimum(np.square(self.residuals), 4.0**2)
        return max(1.0, float(squares.sum() + 4.0) / (len(squares) + 4.0))

    @property
    def log_evidence(self) -> float:
        """The logarithm of (evidence of the measurements times prior of the hyperparameters), without constants."""
        return float(self._log_posterior(self._hyperparameters[None])[0])

    def _model_prediction(self, codes: Codes) -> tuple[Floats, Floats]:
        """Return mean and variance of each config's value by the measurements that the model learns from.

        The configs are compared with these measurements in parts of 8 MB, so that the cache of the CPU holds a part.
        """
        rows = max(1, 1_000_000 // len(self.known.codes))
        parts = [self._predict(codes[start : start + rows]) for start in range(0, len(codes), rows)]
        means, variances = zip(*parts, strict=True)
        return np.concatenate(means), np.concatenate(variances)

    def _predict(self, codes: Codes) -> tuple[Floats, Floats]:
        """Return mean and variance of each config's value, all at once; `_model_prediction` does it in parts."""
        with_known = self._prior_covariance(codes, self.known.codes)
        mean, variance = self._mean + with_known @ self._weights, self._prior_variance(codes)
        if self._source:
            source_mean, source_deviation = self._source.predict(codes)
            mean, variance = mean + self._factor * source_mean, variance + (self._factor * source_deviation) ** 2
        learnt = np.square(with_known @ self._whitening.T).sum(axis=1)  # what the measurements take from the variance
        return mean, np.maximum(self._inflation * (variance - learnt), self._jitter)

    def _narrowing(self, codes: Codes) -> Floats:
        """Return the factor, at most 1, by which the left-out measurements lower each config's standard deviation.

        The model itself learns from `MOST_READINGS` measurements at most; see `with_left_out` for all others.
        """
        if not len(self._left_out.values):
            return np.ones(len(codes))
        mean, variance = self._model_prediction(codes)
        _, narrowed = with_left_out(self._left_out, codes, mean, variance)
        return np.sqrt(narrowed / variance)

    def _split(self, readings: Readings) -> tuple[Readings, Readings]:
        """Return the measurements that the model learns from, and those that are left out: none up to `MOST_READINGS`.

        The choice does not depend on the source case. So models with and without a source learn from the same
        measurements, and their evidence can be compared.
        """
        if len(readings.values) <= MOST_READINGS:
            return readings, readings.at(np.arange(0))
        # `_covariance` needs a unit; the fit will set its own
        self._unit = 1.0 if readings.logarithmic else float(readings.values.std())
        covariance = self._covariance(self._prior_mean, self._pairs_of(readings.codes, readings.codes))
        chosen = informative(covariance, readings.values, readings.errors, MOST_READINGS)
        return readings.at(chosen), readings.at(np.setdiff1d(np.arange(len(readings.values)), chosen))

    def _source_covariance(self, rows: Codes, columns: Codes) -> Floats:
        """Return the covariance of the source model's values, times the squared factor: row by column."""
        if self._source is None:
            return np.zeros((1, 1))  # it is added to a covariance of any shape
        return self._factor**2 * self._source.covariance_between(rows, columns)

    @property
    def _jitter(self) -> float:
        """The variance that is added to a diagonal, so that a covariance stays positive definite."""
        return _JITTER * self._unit**2

    def _refitted_noise_factors(self, freedom: float) -> Floats:
        """Return a factor on the error variance of each measurement, so that measurements far off count less.

        This is a step of expectation-maximisation for Student's t (Lange, Little and Taylor, "Robust Statistical
        Modeling Using the t Distribution", 1989). `freedom`: the degrees of freedom.
        """
        noise = self._noise(self._hyperparameters)
        whitening = np.linalg.inv(self._cholesky(self._hyperparameters))
        residual = noise * (whitening.T @ (whitening @ self._targets))  # the measurement less the expected true value
        uncertainty = noise * (1.0 - noise * np.square(whitening).sum(axis=0))  # the variance of the true value
        without_factors = noise / self._noise_factors  # the error variance
        return (freedom + (residual**2 + uncertainty) / without_factors) / (freedom + 1.0)

    def _noise(self, hyperparameters: Floats) -> Floats:
        """Return the error variance of each measurement: … by measurement."""
        chance = self._unit * np.exp(hyperparameters[..., -1:])
        return (self.known.errors**2 + chance**2) * self._noise_factors

    def _maximum_a_posteriori(self, start: Floats) -> Floats:
        """Return the most probable hyperparameters: climb from `start`, one coordinate at a time.

        Hyperparameters are the logarithms of the numbers of `_Parts`, in its order, and of the chance scatter.
        """
        (best_posterior,), best = self._log_posterior(start[None]), start
        moves = np.eye(len(start))[self._prior_deviation > 0.0]  # along each coordinate that is fitted
        tried = {start.tobytes()}  # the climb comes back to points that it has left, and to those around its end
        at_once = max(1, _AT_ONCE // len(self._targets) ** 2)
        for step in (1.0, 0.5) * _ROUNDS:
            left = np.vstack([moves, -moves]) * step
            while len(left):
                moved = best + left[:at_once]
                is_new = np.array([point.tobytes() not in tried for point in moved])
                posteriors = np.full(len(moved), -np.inf)
                posteriors[is_new] = self._log_posterior(moved[is_new])
                is_better = posteriors > best_posterior
                last = int(is_better.argmax()) if is_better.any() else len(moved) - 1
                tried.update(point.tobytes() for point in moved[: last + 1])
                if is_better[last]:  # the later moves then start from this point
                    best, best_posterior = moved[last], posteriors[last]
                left = left[last + 1 :]
        return best

    def _log_posterior(self, hyperparameters: Floats) -> Floats:
        """Return the logarithm of evidence times prior, without constant terms, for each row of hyperparameters."""
        count = len(self._targets)
        bordered = np.zeros((len(hyperparameters), count + 1, count + 1))  # only the lower triangle is used
        bordered[:, :count, :count] = self._measured_covariance(hyperparameters)
        bordered[:, count] = [*self._targets, np.inf]
        root = np.linalg.cholesky(bordered)  # its last row is the product of the inverse root and the targets
        misfit = np.square(root[:, count, :count]).sum(axis=-1)
        departure = np.square((hyperparameters - self._prior_mean) / self._prior_scale).sum(axis=-1)
        half_log_determinant = np.log(np.diagonal(root, axis1=-2, axis2=-1)[:, :count]).sum(axis=-1)
        return -0.5 * (misfit + departure) - half_log_determinant

    def _cholesky(self, hyperparameters: Floats) -> Floats:
        """Return the Cholesky root of the covariance of the measurements."""
        return np.asarray(np.linalg.cholesky(self._measured_covariance(hyperparameters)), dtype=np.float64)

    def _measured_covariance(self, hyperparameters: Floats) -> Floats:
        """Return the covariance of the measurements: … by row by column."""
        covariance = self._covariance(hyperparameters, self._pairs) + self._unfitted_covariance
        diagonal = np.arange(len(self._targets))
        covariance[..., diagonal, diagonal] += self._noise(hyperparameters)
        return covariance

    def _prior_covariance(self, rows: Codes, columns: Codes) -> Floats:
        """Return the covariance of the true values before any measurement of this case: row by column."""
        covariance = self._covariance(self._hyperparameters, self._pairs_of(rows, columns))
        return covariance + self._source_covariance(rows, columns)

    def _pairs_of(self, rows: Codes, columns: Codes, cache: Cache | None = None) -> _Pairs:
        """Return what the covariance of two lists of configs depends on. `cache` keeps covariances for later calls."""
        return _Pairs(
            nearness=Nearness(self._levels.distances(columns), rows, cache),
            slopes=np.outer(self._slopes(rows), self._slopes(columns)),
            same=equal(rows, columns),
        )

    def _covariance(self, hyperparameters: Floats, pairs: _Pairs) -> Floats:
        """Return the covariance that the model assumes before any measurement, without that of the source.

        It is the sum of the covariances of the model's independent parts: the ladder's level, trend and curve, the
        effects of single parameters, the common effect of all parameters, and what belongs to a single config.

        Args:
            hyperparameters: The logarithms of the sizes of the parts: see `_parts`.
            pairs: How each config of the rows relates to each config of the columns.

        Returns:
            The covariance: row by column.
        """
        nearness, parts, place = pairs.nearness, _parts(hyperparameters), self._levels.ladder
        curve = 1.0 if place is None else nearness.covariance(place, parts.lengths, jumping_kernel)
        ladder = self._level**2 * (1.0 + pairs.slopes) + parts.curve**2 * curve
        effects = single_effects(nearness, parts.lengths, parts.singles**2)
        effects = effects + parts.joint**2 * common_effect(nearness, parts.lengths) + parts.own**2 * pairs.same
        return self._unit**2 * (ladder + effects)

    def _prior_variance(self, codes: Codes) -> Floats:
        """Return the diagonal of `_covariance`."""
        parts = _parts(self._hyperparameters)
        ladder = self._level**2 * (1.0 + self._slopes(codes) ** 2)
        parts_without_singles = np.square([parts.joint, parts.own, parts.curve]).sum()
        return np.asarray(self._unit**2 * (ladder + (parts.singles**2).sum() + parts_without_singles), dtype=np.float64)

    def _slopes(self, codes: Codes) -> Floats:
        """Return the height of each config on the ladder, measured from its middle."""
        return self._levels.heights(codes) - 0.5


class Mixture:
    """The average of two models of the same measurements: `taught` has learnt from similar cases, `alone` has not.

    Where the two models disagree, the true value is less certain. The law of total covariance gives mean and covariance
    (Hoeting, Madigan, Raftery and Volinsky, "Bayesian Model Averaging: A Tutorial", 1999).
    """

    def __init__(self, alone: Surrogate, taught: Surrogate) -> None:
        self._alone, self._taught = alone, taught
        log_odds = min(max(alone.log_evidence - taught.log_evidence, -50.0), 50.0)
        self._taught_weight = 1.0 / (1.0 + math.exp(log_odds))

    @property
    def measurements(self) -> float:
        """The number of measurements that the models were fitted to, averaged over both."""
        return (1.0 - self._taught_weight) * self._alone.measurements + self._taught_weight * self._taught.measurements

    def predict(self, codes: Codes) -> Prediction:
        """Return what is expected of the true value of each config."""
        alone, taught = self._alone.predict(codes), self._taught.predict(codes)
        variance = (
            self._average(alone.deviation**2, taught.deviation**2)
            + self._disagreement_factor * (taught.mean - alone.mean) ** 2
        )
        return Prediction(self._average(alone.mean, taught.mean), np.sqrt(variance))

    def joint_prediction(self, codes: Codes) -> JointPrediction:
        """Return what is expected of the true values of the configs together."""
        alone, taught = self._alone.joint_prediction(codes), self._taught.joint_prediction(codes)
        difference = taught.mean - alone.mean
        between = self._disagreement_factor * np.outer(difference, difference)
        covariance = self._average(alone.covariance, taught.covariance) + between
        return JointPrediction(self._average(alone.mean, taught.mean), covariance)

    def _average(self, alone: Floats, taught: Floats) -> Floats:
        """Return the average of what the two models predict, weighted by their probabilities."""
        return (1.0 - self._taught_weight) * alone + self._taught_weight * taught

    @property
    def _disagreement_factor(self) -> float:
        """The factor on the squared difference of the two predictions: the variance of which model is right."""
        return self._taught_weight * (1.0 - self._taught_weight)
