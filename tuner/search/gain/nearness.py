"""How much alike two configs are expected to be in the effects of their parameters: Matérn's covariance. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tuner.search.arrays import Floats
from tuner.search.gain.levels import Codes

SHARPER = 2.0
"""The effect of a single parameter has a length scale that is shorter than the common effect's by this factor."""


Kept = dict[tuple[int, float, Callable[[Floats], Floats]], Floats]
"""Parameter, length scale and kind of covariance → the covariance: row by column."""


@dataclass(frozen=True, slots=True)
class Near:
    """Squared distances in squared length scales, by the values of each parameter.

    A parameter has few values, so a covariance is computed once for each value and looked up for each row.
    """

    squares: Sequence[Floats]
    """For each parameter: value by column, before the length scales."""
    lengths: Sequence[float]
    """The length scale of each parameter."""
    codes: Codes
    """The values of the rows: row by parameter."""
    kept: Kept | None = None
    """Where given: the covariances that have been computed."""

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        return len(self.codes), self.squares[0].shape[1]

    def of(self, parameter: int, covariance: Callable[[Floats], Floats]) -> Floats:
        """Return the covariance of one parameter: row by column."""
        key = parameter, self.lengths[parameter], covariance
        if self.kept is not None and key in self.kept:
            return self.kept[key]
        squares = self.squares[parameter] / self.lengths[parameter] ** 2
        found = covariance(squares)[self.codes[:, parameter]]
        if self.kept is not None:
            self.kept[key] = found
        return found


def singly(near: Near, sizes: Floats) -> Floats:
    """Return the covariance of the effects of single parameters, whose variances are `sizes`."""
    total = np.zeros(near.shape)
    for parameter, size in enumerate(sizes):
        total += size * near.of(parameter, _sharper)
    return total


def jointly(near: Near) -> Floats:
    """Return the covariance of the common effect of all parameters; 1 for equal configs."""
    product = np.ones(near.shape)
    for parameter in range(len(near.squares)):
        product *= near.of(parameter, _matern)
    return product


def equal(rows: Codes, columns: Codes) -> Floats:
    """Return 1 where a row is the same config as a column, otherwise 0."""
    same = np.ones((len(rows), len(columns)), dtype=bool)
    for row, column in zip(rows.T, columns.T, strict=True):
        same &= row[:, None] == column
    return same.astype(np.float64)


def _sharper(squares: Floats) -> Floats:
    return _matern(SHARPER**2 * squares)


def _matern(squares: Floats) -> Floats:
    scaled = np.sqrt(5.0 * squares)
    return (1.0 + scaled + scaled**2 / 3.0) * np.exp(-scaled)
