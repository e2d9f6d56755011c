"""What the parts of a step, and memory, depend on: effects of single parameters and of pairs of these. Pure."""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from tuner.search.frontier import is_number
from tuner.search.gain.kernels import Nearness, single_effects
from tuner.search.gain.pool import Codes, Levels
from tuner.search.resource_model import Floats, Prediction, means_above
from tuner.study import Space

LEAST_READINGS = 5
"""The fewest readings with parts from which the parts are modelled (chosen)."""
LARGE = 0.03
"""A part that never exceeds this share of a step is not modelled by itself (chosen)."""
FLOOR = 0.08
"""The share of the shortest step that is added to each part, so that its logarithm exists (chosen on even launches)."""
SLOPE = 1.17
"""The effect of a doubling of a number, as a multiple of the effect of its parameter (chosen on even launches)."""
LEVEL = 1.5
"""The standard deviation of the level of a logarithm (chosen)."""
SINGLE = 0.3, 1.2
"""The usual effect of a parameter on a logarithm, and the deviation of its own logarithm (chosen on even launches)."""
PAIR = 1.7, 1.0
"""The usual effect of a pair as a multiple of the product of both effects, and its deviation (chosen, as before)."""
CHANCE = 0.03, 0.7
"""The usual scatter of a reading about all effects, and its deviation (chosen)."""
LEAST_OF_OUT = 1.02
"""The share of the memory that a config needs at least, if it ran out (chosen)."""
FITTED_AT = np.array([3, 4, 5, 7, 9, 12, 16, 21, 27, 35, 45, 60, 80, 110, 150, 200, 300, 400])
"""The sizes of the effects are fitted to so many of the first readings, so that most asks need no fit (chosen)."""


class Basis:
    """The covariance of the effects of each single parameter, before its size counts."""

    def __init__(self, space: Space, levels: Levels) -> None:
        self._tables: list[Floats] = []
        """For each parameter: value by value; the last value stands for a config that does not use the parameter."""
        for column, parameter in enumerate(space.parameters):
            numbers = parameter.values
            codes = np.repeat(np.arange(len(numbers) + 1)[:, None], len(space.parameters), axis=1)
            codes[:, np.arange(len(space.parameters)) != column] = 0
            own = (np.arange(len(space.parameters)) == column).astype(float)
            table = single_effects(Nearness(levels.distances(codes), codes), np.ones(len(own)), own)
            if all(is_number(number) and number > 0 for number in numbers):
                doublings = np.log2(np.array(numbers, dtype=float))
                doublings = np.append(doublings - doublings.mean(), 0.0)
                table += SLOPE**2 * np.outer(doublings, doublings)
            self._tables.append(table)

    def between(self, rows: Codes, columns: Codes) -> Floats:
        """Return the covariances between two lists of configs: parameter by row by column."""
        each = zip(self._tables, rows.T, columns.T, strict=True)
        return np.stack([table[:, column][row] for table, row, column in each])

    def of(self, codes: Codes) -> Floats:
        """Return the variances of configs: parameter by config."""
        return np.stack([table.diagonal()[code] for table, code in zip(self._tables, codes.T, strict=True)])


class Effects:
    """A Gaussian process of a logarithm: a level, and effects of single parameters and of pairs of these.

    How much each parameter matters is fitted to the readings.
    """

    def __init__(self, basis: Basis, codes: Codes, values: Floats) -> None:
        """Learn from at least one reading."""
        self._basis, self._mean = basis, float(values.mean())
        first = int(FITTED_AT[max(len(values), FITTED_AT[0]) >= FITTED_AT].max())
        each = basis.between(codes[:first], codes[:first])
        self._sizes = np.array(_fitted_sizes(each.tobytes(), values[:first].tobytes()))
        self._scatter = math.exp(self._sizes[-1])
        self._learn(codes, values, np.zeros(len(values)))

    def _learn(self, codes: Codes, values: Floats, noises: Floats) -> None:
        """Condition the process on readings. `noises`: the variance that each has beside the usual scatter."""
        self._codes, self._differences = codes, values - self._mean
        covariance = self._prior(self._basis.between(codes, codes)) + np.diag(self._scatter**2 + noises)
        self._whitening = np.linalg.inv(np.linalg.cholesky(covariance))
        self._weights = self._whitening.T @ (self._whitening @ self._differences)

    def _prior(self, each: Floats) -> Floats:
        return _covariance(self._sizes, each)

    def predict(self, codes: Codes) -> Prediction:
        """Return what is expected of the logarithm of each config; the memory that this needs is bounded."""
        some = np.array_split(codes, 1 + len(codes) * len(self._codes) // 1_000_000)
        means, variances = (np.concatenate(each) for each in zip(*map(self._predict, some), strict=True))
        return Prediction(means, np.sqrt(np.maximum(variances, 1e-8)))

    def _predict(self, codes: Codes) -> tuple[Floats, Floats]:
        """Return means and variances; see `predict`."""
        learnt = self._prior(self._basis.between(codes, self._codes))
        variances = self._prior(self._basis.of(codes)) - np.square(learnt @ self._whitening.T).sum(axis=1)
        return self._mean + learnt @ self._weights, variances

    def covariance_between(self, rows: Codes, columns: Codes) -> Floats:
        """Return the covariance of two lists of configs, given the readings: row by column."""
        of_rows, of_columns = (
            self._prior(self._basis.between(codes, self._codes)) @ self._whitening.T for codes in (rows, columns)
        )
        return self._prior(self._basis.between(rows, columns)) - of_rows @ of_columns.T

    def left_out(self) -> Prediction:
        """Return what all other readings say of the logarithm behind each reading."""
        with_noise = 1.0 / np.square(self._whitening).sum(axis=0)
        means = self._mean + self._differences - self._weights * with_noise
        return Prediction(means, np.sqrt(np.maximum(with_noise - self._scatter**2, 1e-6)))


def _covariance(sizes: Floats, each: Floats) -> Floats:
    """Return the covariance of a level, single effects and pairs by the covariances of each parameter."""
    scaled = each * np.exp(2.0 * sizes[:-2]).reshape(-1, *[1] * (each.ndim - 1))
    total = scaled.sum(axis=0)
    pairs = (total**2 - np.square(scaled).sum(axis=0)) / 2.0  # the sum of the products of all pairs
    return LEVEL**2 + total + math.exp(2.0 * sizes[-2]) * pairs


@lru_cache(maxsize=64)
def _fitted_sizes(of_each: bytes, of_values: bytes) -> tuple[float, ...]:
    """Return the most probable logarithms of the sizes: of each parameter, of pairs, and of the scatter.

    Like `Surrogate`, it climbs along one coordinate at a time.

    Args:
        of_each: The covariances of each parameter between the readings: parameter by reading by reading.
        of_values: The readings.
    """
    values = np.frombuffer(of_values)
    each = np.frombuffer(of_each).reshape(-1, len(values), len(values))
    usual = np.array([SINGLE] * len(each) + [PAIR, CHANCE])
    prior, scale, differences = np.log(usual[:, 0]), usual[:, 1], values - values.mean()

    def log_posterior(sizes: Floats) -> float:
        """Return the logarithm of evidence times prior, without constant terms."""
        root = np.linalg.cholesky(_covariance(sizes, each) + math.exp(2.0 * sizes[-1]) * np.eye(len(values)))
        misfit = np.square(np.linalg.solve(root, differences)).sum() + np.square((sizes - prior) / scale).sum()
        return -0.5 * float(misfit) - float(np.log(root.diagonal()).sum())

    best, highest = prior, log_posterior(prior)
    for step in (1.2, 1.2, 0.6, 0.6):
        for move in np.vstack([np.eye(len(prior)), -np.eye(len(prior))]) * step:
            while (posterior := log_posterior(best + move)) > highest:
                best, highest = best + move, posterior
    return tuple(best)


class StepParts:
    """The logarithm of a speed, whose step takes the sum of its parts, as the source of a `Surrogate`."""

    measured = 0.0
    """No measurement of another case stands behind it."""

    def __init__(self, basis: Basis, codes: Codes, speeds: Floats, shares: Sequence[Mapping[str, float]]) -> None:
        """Model each part that some reading shows to be large, and the rest of the step as one more part.

        Args:
            basis: The parameters.
            codes: The config of each reading.
            speeds: The logarithms of the speeds.
            shares: The parts of each step, as shares of its time; some may be unknown.
        """
        names = sorted({name for of_reading in shares for name in of_reading})
        known = np.array([[of_reading.get(name, 0.0) for name in names] for of_reading in shares])
        known /= max(1.0, float(np.median(known.sum(axis=1))))  # a part that is read too large
        large = known[:, known.max(axis=0, initial=0.0) > LARGE]
        rest = np.maximum(1.0 - large.sum(axis=1), 0.0)
        steps = np.exp(-speeds)  # seconds, up to a factor
        self._floor = FLOOR * float(steps.min())
        of_parts = [steps * share for share in (*large.T, rest) if share.max() > LARGE]
        self._parts = [Effects(basis, codes, np.log(part_s + self._floor)) for part_s in of_parts]

    def predict(self, codes: Codes) -> Prediction:
        """Return what is expected of each config by the parts alone."""
        return self._summed([part.predict(codes) for part in self._parts])

    def left_out(self) -> Prediction:
        """Return what all other readings say of the value behind each reading."""
        return self._summed([part.left_out() for part in self._parts])

    def covariance_between(self, rows: Codes, columns: Codes) -> Floats:
        """Return the covariance of two lists of configs, given the parts of all readings: row by column."""
        total = np.zeros((len(rows), len(columns)))
        for part, of_rows, of_columns in zip(self._parts, self._shares_of(rows), self._shares_of(columns), strict=True):
            total += np.outer(of_rows, of_columns) * part.covariance_between(rows, columns)
        return total

    def _shares_of(self, codes: Codes) -> Floats:
        """Return the share of each part in the step of each config: part by config."""
        return self._shares([part.predict(codes).mean for part in self._parts])[1]

    def _summed(self, parts: Sequence[Prediction]) -> Prediction:
        """Return the logarithm of the speed; the logarithm of a sum is made linear at the means of its parts."""
        total, shares = self._shares([part.mean for part in parts])
        variances = np.square(shares * np.array([part.deviation for part in parts])).sum(axis=0)
        return Prediction(-np.log(total), np.sqrt(variances))

    def _shares(self, means: Sequence[Floats]) -> tuple[Floats, Floats]:
        """Return the time of each step, and the share of each part in it: part by config."""
        times = np.maximum(np.exp(np.array(means)) - self._floor, 0.1 * self._floor)
        return times.sum(axis=0), times / times.sum(axis=0)


class Memory(Effects):
    """The logarithm of the share of memory that configs need, by those that ran and those that ran out."""

    def __init__(self, basis: Basis, ran: Codes, shares: Floats, ran_out: Codes) -> None:
        """Learn from the shares of at least one config that ran; each of `ran_out` needs more than 1."""
        values = np.log(shares)
        super().__init__(basis, ran, values)
        without = self.left_out()
        squares = np.square(values - without.mean) / (np.square(without.deviation) + self._scatter**2)
        self._inflation = max(1.0, (float(np.minimum(squares, 4.0**2).sum()) + 4.0) / (len(values) + 4.0))
        """The factor on variances that makes the residuals as large as they should be: see `Surrogate`."""
        if not len(ran_out):
            return
        # A config that ran out counts as a reading that would have led to the same mean and deviation (one step of
        # expectation propagation: Rasmussen and Williams, 3.6).
        means, deviations = self.predict(ran_out)
        ratios = (means_above(math.log(LEAST_OF_OUT), Prediction(means, deviations)) - means) / deviations
        shrinking = np.clip(ratios * (ratios - (math.log(LEAST_OF_OUT) - means) / deviations), 0.01, 0.98)
        needed = means + deviations * ratios / shrinking
        noises = np.concatenate([np.zeros(len(ran)), np.square(deviations) * (1.0 - shrinking) / shrinking])
        self._learn(np.concatenate([ran, ran_out]), np.concatenate([values, needed]), noises)

    def logarithms_at(self, codes: Codes) -> Prediction:
        """Return what is expected of the logarithm of the share, the scatter of a reading included."""
        means, deviations = self.predict(codes)
        return Prediction(means, np.hypot(math.sqrt(self._inflation) * deviations, self._scatter))
