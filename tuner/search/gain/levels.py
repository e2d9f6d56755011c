"""Configs as points in a box that has one side per parameter. Pure."""

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from tuner.search.arrays import Floats
from tuner.study.space import Config, Parameter, Space, ladder_of

Codes = NDArray[np.intp]

_MIDDLE = 0.5


class Levels:
    """The values of each parameter, and the distances between them.

    Numbers lie between 0 and 1. Rungs lie there by their logarithm, so that all doublings are equally far apart, and
    other numbers by their rank. Two words have the distance 1. A parameter that a config does not use lies half-way
    between all its values.
    """

    def __init__(self, space: Space) -> None:
        self._names = space.names
        self._codes = [{value: code for code, value in enumerate((*one.values, None))} for one in space.parameters]
        self._lines = [_line(parameter, ladder_of(space)) for parameter in space.parameters]
        ladder = ladder_of(space)
        self.ladder = None if ladder is None else self._names.index(ladder)
        """The place of the ladder among the parameters; None where there is no ladder."""

    def codes(self, configs: Iterable[Config]) -> Codes:
        """Return a row per config and a column per parameter: the place of the value among the parameter's values."""
        rows = [
            [codes[config.get(name)] for name, codes in zip(self._names, self._codes, strict=True)]
            for config in configs
        ]
        return np.array(rows, dtype=np.intp).reshape(len(rows), len(self._names))

    def heights(self, codes: Codes) -> Floats:
        """Return the height of each config on the ladder, from 0 to 1; one half where there is no ladder."""
        if self.ladder is None:
            return np.full(len(codes), _MIDDLE)
        line = self._lines[self.ladder]
        return np.full(len(codes), _MIDDLE) if line is None else line[codes[:, self.ladder]]

    def distances(self, columns: Codes) -> list[Floats]:
        """Return, for each parameter, the squared distance of each of its values to each config: value by column."""
        each = zip(self._codes, self._lines, columns.T, strict=True)
        return [_squares(line, np.arange(len(codes)), column, len(codes) - 1) for codes, line, column in each]


def _line(parameter: Parameter, ladder: str | None) -> Floats | None:
    """Return the place of each number of a parameter, from 0 to 1; None for words.

    The last place is for configs that do not use the parameter.
    """
    values = parameter.values
    if any(isinstance(value, str) for value in values):
        return None
    numbers = np.array(values, dtype=float)
    line = np.log(numbers) if parameter.name == ladder else np.argsort(np.argsort(numbers)).astype(float)
    span = max(float(np.ptp(line)), 1e-9)
    return np.append((line - line.min()) / span, _MIDDLE)


def _squares(line: Floats | None, rows: Codes, columns: Codes, unused: int) -> Floats:
    """Return the squared distances in one parameter; `line` is None where its values are words."""
    if line is None:
        return _words_apart(rows, columns, unused)
    return np.square(line[rows][:, None] - line[columns][None, :])


def _words_apart(rows: Codes, columns: Codes, unused: int) -> Floats:
    """Return the squared distances of words: one half to a config that does not use the parameter, about 1 otherwise.

    The words are the corners of a regular simplex, and the unused parameter is the origin.
    """
    corner = (1.0 / math.sqrt(2.0)) ** 2
    either = (rows[:, None] == unused) | (columns[None, :] == unused)
    return np.where(rows[:, None] == columns[None, :], 0.0, np.where(either, corner, corner + corner))
