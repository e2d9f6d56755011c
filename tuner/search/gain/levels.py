"""Configs as points in a box that has one side per parameter. Pure."""

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from tuner.search.arrays import Floats
from tuner.study.space import LADDER, Config, Parameter, Space

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
        self._places = [_places(parameter) for parameter in space.parameters]
        self.apart = [_apart(places) for places in self._places]
        """For each parameter, the squared distance of each value to each other value."""
        self.ladder = self._names.index(LADDER) if LADDER in self._names else None
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
        return self._places[self.ladder][codes[:, self.ladder], 0]


def _places(parameter: Parameter) -> Floats:
    """Return a point for each value of a parameter. The last point is for configs that do not use the parameter.

    The points of numbers have one coordinate; the points of words have one coordinate per word.
    """
    values = parameter.values
    if any(isinstance(value, str) for value in values):
        return np.vstack([np.eye(len(values)) / math.sqrt(2), np.full(len(values), 0.0)])
    numbers = np.array(values, dtype=float)
    line = np.log(numbers) if parameter.name == LADDER else np.argsort(np.argsort(numbers)).astype(float)
    span = max(float(np.ptp(line)), 1e-9)
    return np.append((line - line.min()) / span, _MIDDLE)[:, None]


def _apart(places: Floats) -> Floats:
    return ((places[:, None, :] - places[None, :, :]) ** 2).sum(axis=-1)
