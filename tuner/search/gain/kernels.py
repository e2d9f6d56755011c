"""The covariances between configs, by the values of their parameters. Pure."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from tuner.search.gain.pool import Codes
from tuner.search.resource_model import Floats

Cache = dict[tuple[int, float, Callable[[Floats], Floats]], Floats]
"""Parameter, length scale and kind of covariance → the covariance: row by column."""


class Nearness(NamedTuple):
    """How near each config of one list, the rows, is to each config of another list, the columns, by their values."""

    squares: Sequence[Floats]
    """For each parameter, the squared distance of each of its values to each column: value by column."""
    codes: Codes
    """The values of the rows: row by parameter."""
    cache: Cache | None = None
    """Where given: keeps the covariances that have been computed."""

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        return len(self.codes), self.squares[0].shape[1]

    def covariance(self, parameter: int, length: float, kernel: Callable[[Floats], Floats]) -> Floats:
        """Return the covariance of rows and columns by one parameter: row by column.

        A parameter has few values, so the covariance is computed once for each value and looked up for each row.

        Args:
            parameter: The index of the parameter.
            length: The length scale, as a share of the parameter's range.
            kernel: Returns the covariances of squared distances, which are given in length scales.
        """
        key = parameter, length, kernel
        if self.cache is not None and key in self.cache:
            return self.cache[key]
        of_values = kernel(self.squares[parameter] / length**2)
        result = of_values[self.codes[:, parameter]]
        if self.cache is not None:
            self.cache[key] = result
        return result


def single_effects(nearness: Nearness, lengths: Floats, variances: Floats) -> Floats:
    """Return the covariance of the effects of single parameters, which have these variances."""
    total = np.zeros(nearness.shape)
    for parameter, (length, variance) in enumerate(zip(lengths, variances, strict=True)):
        total += variance * nearness.covariance(parameter, length, _sharp_kernel)
    return total


def pair_effects(nearness: Nearness, lengths: Floats) -> Floats:
    """Return the covariance of the effects of all pairs of parameters, each of variance 1."""
    total, squares = np.zeros(nearness.shape), np.zeros(nearness.shape)
    for parameter, length in enumerate(lengths):
        single = nearness.covariance(parameter, length, _sharp_kernel)
        total += single
        squares += single**2
    return (total**2 - squares) / 2.0  # the sum of the products of all pairs


def common_effect(nearness: Nearness, lengths: Floats) -> Floats:
    """Return the covariance of the common effect of all parameters; 1 for equal configs."""
    product = np.ones(nearness.shape)
    for parameter, length in enumerate(lengths):
        product *= nearness.covariance(parameter, length, _matern_kernel)
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
