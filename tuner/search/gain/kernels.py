"""The covariances between configs, by the values of their parameters. Pure."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from tuner.search.gain.pool import Codes
from tuner.search.resource_model import Floats

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
