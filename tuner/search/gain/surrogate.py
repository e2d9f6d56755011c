"""Predicts the value of every config from the measurements: a Gaussian process over ladder and choices. Pure.

Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006: prediction (2.25, 2.26), evidence (2.30),
Matérn's covariance with 5/2 (4.17) and with 1/2 (4.2.1), sums and products of covariances (4.2.4).
"""

from dataclasses import dataclass

import numpy as np

from tuner.search.arrays import Floats
from tuner.search.gain.levels import Codes, Levels
from tuner.search.gain.readings import Readings

LENGTH, LENGTH_SPREAD = 1.0, 0.5
"""The usual length scale of an effect, as a share of its parameter's range. Each spread is that of the logarithm."""
SIZE, SIZE_SPREAD = 1.0, 0.7
"""The usual size of all effects together. Sizes are in standard deviations of the measurements."""
OWN, OWN_SPREAD = 0.15, 0.7
"""The usual size of the part of a value that belongs to one config alone."""
SHARPER = 2.0
"""The effect of a single parameter has a length scale that is shorter than the common effect's by this factor."""
LEVEL = 2.0
"""The size of the level, and of the trend over the whole ladder."""
CURVE = 1.0
"""The size of the ladder's departure from its trend. It is not fitted, because most measurements lie on a few rungs."""
LEAST_UNIT = 0.1
"""The smallest standard deviation of the measurements that is assumed, as a share of their mean.

A few measurements may agree by chance.
"""
LEAST_DIFFERENCE = 0.02
"""The smallest standard deviation of the differences of two similar cases that is assumed, as a share of the mean."""

_MOST_NUMBERS = 4_000_000
"""The most numbers of one comparison, which has one per config, trial and parameter: 32 MB."""
_STEPS = (1.0, 0.5)
_ROUNDS = 2
_JITTER = 1e-9


@dataclass(frozen=True, kw_only=True, slots=True)
class _Pairs:
    """How each config of one list, the rows, relates to each config of another list, the columns."""

    squares: Floats
    """The squared distance in each parameter: parameter by row by column."""
    slopes: Floats
    """The product of the heights on the ladder, measured from its middle."""
    same: Floats
    """1 where row and column are the same config, otherwise 0."""
    lent: Floats | float
    """The covariance that comes from the elder case; 0 where there is none."""


class Surrogate:
    """A Gaussian process whose value is a sum of independent parts.

    The parts are a level, the trend of the ladder, its curve, the effects of single parameters, and the common effect
    of all parameters. One more part belongs to a single config. Length scales and sizes are fitted to the measurements
    (maximum a posteriori).
    """

    def __init__(self, levels: Levels, readings: Readings, elder: "Surrogate | None" = None) -> None:
        """`elder`: a similar case. The values are then those of the elder case times a factor, plus a difference.

        This is Kennedy and O'Hagan, "Predicting the output from a complex computer code when fast approximations are
        available", 2000, equation 1.
        """
        self._levels = levels
        self._known = readings
        self._elder = elder
        mean = float(readings.values.mean())
        lent = float(elder.expected(readings.codes).mean()) if elder else 0.0
        self._factor = mean / lent if abs(lent) > _JITTER else 0.0
        self._mean = 0.0 if elder else mean
        self._differences = readings.values - self._lent(readings.codes) - self._mean
        least = LEAST_DIFFERENCE if elder else LEAST_UNIT
        self._unit = max(float(self._differences.std()), (1.0 if elder else 3.0) * readings.error, least * abs(mean))
        self._noise = np.diag(readings.errors**2 + self._jitter) + readings.shared
        self._pairs = self._compared(readings.codes, readings.codes)
        parameters = readings.codes.shape[1]
        self._usual = np.log([LENGTH] * parameters + [SIZE, OWN])
        self._spread = np.array([LENGTH_SPREAD] * parameters + [SIZE_SPREAD, OWN_SPREAD])
        self._shape = self._most_probable()
        self._root = self._rooted(self._shape)
        self._weights = self._weighed(self._root)

    def believe(self, codes: Codes) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of the true value of each config; the memory that it needs is bounded."""
        rows = max(1, _MOST_NUMBERS // self._known.codes.size)
        parts = [self._believe(codes[start : start + rows]) for start in range(0, len(codes), rows)]
        means, deviations = zip(*parts, strict=True)
        return np.concatenate(means), np.concatenate(deviations)

    def _believe(self, codes: Codes) -> tuple[Floats, Floats]:
        across = self._across(codes)
        learnt = (np.linalg.solve(self._root, across.T) ** 2).sum(axis=0)
        return self._lent(codes) + self._mean + across @ self._weights, np.sqrt(
            np.maximum(self._prior(codes) - learnt, self._jitter)
        )

    def together(self, codes: Codes) -> tuple[Floats, Floats]:
        """Return mean and covariance of the true values of the configs."""
        across = self._across(codes)
        learnt = np.linalg.solve(self._root, across.T)
        left = self._covariance(self._shape, self._compared(codes, codes)) - learnt.T @ learnt
        mean = self._lent(codes) + self._mean + across @ self._weights
        return mean, left + self._jitter * np.eye(len(codes))

    def expected(self, codes: Codes) -> Floats:
        """Return the expected true value of each config."""
        return self._lent(codes) + self._mean + self._across(codes) @ self._weights

    def between(self, rows: Codes, columns: Codes) -> Floats:
        """Return the covariance of the true values of two lists of configs."""
        learnt = (np.linalg.solve(self._root, self._across(codes).T) for codes in (rows, columns))
        first, second = learnt
        return self._covariance(self._shape, self._compared(rows, columns)) - first.T @ second

    @property
    def evidence(self) -> float:
        """The logarithm of the evidence of the measurements, times the prior, without constant terms."""
        return self._plausibility(self._shape)

    def _lent(self, codes: Codes) -> Floats:
        """Return what the elder case expects of each config."""
        return self._factor * self._elder.expected(codes) if self._elder else np.zeros(len(codes))

    @property
    def _jitter(self) -> float:
        return _JITTER * self._unit**2

    def _most_probable(self) -> Floats:
        """Return the most probable length scales and sizes: climb from the usual ones, one coordinate at a time."""
        shape, best = self._usual, self._plausibility(self._usual)
        for step in _STEPS * _ROUNDS:
            for move in np.vstack([np.eye(len(shape)), -np.eye(len(shape))]) * step:
                if (plausibility := self._plausibility(shape + move)) > best:
                    shape, best = shape + move, plausibility
        return shape

    def _plausibility(self, shape: Floats) -> float:
        """Return the logarithm of evidence times prior, without constant terms."""
        root = self._rooted(shape)
        misfit = self._differences @ self._weighed(root)
        unusual = (((shape - self._usual) / self._spread) ** 2).sum()
        return -0.5 * float(misfit + unusual) - float(np.log(np.diag(root)).sum())

    def _rooted(self, shape: Floats) -> Floats:
        return np.asarray(np.linalg.cholesky(self._covariance(shape, self._pairs) + self._noise), dtype=np.float64)

    def _weighed(self, root: Floats) -> Floats:
        halfway = np.linalg.solve(root, self._differences)
        return np.asarray(np.linalg.solve(root.T, halfway), dtype=np.float64)

    def _across(self, codes: Codes) -> Floats:
        return self._covariance(self._shape, self._compared(codes, self._known.codes))

    def _compared(self, rows: Codes, columns: Codes) -> _Pairs:
        return _Pairs(
            squares=self._levels.squares(rows, columns),
            slopes=np.outer(self._slopes(rows), self._slopes(columns)),
            same=(rows[:, None, :] == columns).all(axis=-1).astype(np.float64),
            lent=self._factor**2 * self._elder.between(rows, columns) if self._elder else 0.0,
        )

    def _covariance(self, shape: Floats, pairs: _Pairs) -> Floats:
        *lengths, size, own = np.exp(shape)
        squares = pairs.squares / np.square(lengths)[:, None, None]
        effects = size**2 * self._effects(squares) + own**2 * pairs.same
        parts = LEVEL**2 * (1.0 + pairs.slopes) + CURVE**2 * self._curved(squares) + effects
        return self._unit**2 * parts + pairs.lent

    def _prior(self, codes: Codes) -> Floats:
        """Return the diagonal of the covariance."""
        effects = np.exp(2.0 * self._shape[-2:]).sum()
        ladder = LEVEL**2 * (1.0 + self._slopes(codes) ** 2) + CURVE**2 * self._curved(np.zeros(codes.T.shape))
        lent = self._factor**2 * np.square(self._elder.believe(codes)[1]) if self._elder else 0.0
        return np.asarray(self._unit**2 * (ladder + effects) + lent, dtype=np.float64)

    def _slopes(self, codes: Codes) -> Floats:
        return self._levels.heights(codes) - 0.5

    def _curved(self, squares: Floats) -> Floats:
        """Return the covariance along the ladder; 1 for equal rungs, and 1 where there is no ladder.

        Matérn's covariance with 1/2 allows a jump between two rungs, for example where a cache ends.
        """
        at = self._levels.ladder
        return np.ones(squares.shape[1:]) if at is None else np.exp(-np.sqrt(squares[at]))

    def _effects(self, squares: Floats) -> Floats:
        """Return the covariance of all effects; 1 for equal configs. `squares` are in squared length scales."""
        return (self._singly(squares) + self._jointly(squares)) / 2.0

    def _singly(self, squares: Floats) -> Floats:
        return np.asarray(_matern(SHARPER**2 * squares).mean(axis=0), dtype=np.float64)

    def _jointly(self, squares: Floats) -> Floats:
        return np.asarray(_matern(squares).prod(axis=0), dtype=np.float64)


def _matern(squares: Floats) -> Floats:
    scaled = np.sqrt(5.0 * squares)
    return (1.0 + scaled + scaled**2 / 3.0) * np.exp(-scaled)
