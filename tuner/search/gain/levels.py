"""Configs as places in a box, one side per parameter. Pure."""

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from tuner.search.arrays import Floats
from tuner.study.space import LADDER, Config, Parameter, Space

Codes = NDArray[np.intp]

_MIDDLE = 0.5


class Levels:
    """The values of each parameter, and how far they lie apart.

    Numbers have a place between 0 and 1: rungs by their logarithm, so that doublings are equally far apart, others by
    their rank. Words are 1 apart. A parameter that does not count in a config lies half-way between all its values.
    """

    def __init__(self, space: Space) -> None:
        self._names = space.names
        self._codes = [{value: code for code, value in enumerate((*one.values, None))} for one in space.parameters]
        self._places = [_places(parameter) for parameter in space.parameters]
        self.apart = [_apart(places) for places in self._places]
        """Per parameter the squared distances, level by level."""
        self.ladder = self._names.index(LADDER) if LADDER in self._names else None
        """Which of the parameters the ladder is; None where there is none."""

    def codes(self, configs: Iterable[Config]) -> Codes:
        """Give config by parameter: which of its levels each one has."""
        rows = [
            [codes[config.get(name)] for name, codes in zip(self._names, self._codes, strict=True)]
            for config in configs
        ]
        return np.array(rows, dtype=np.intp).reshape(len(rows), len(self._names))

    def heights(self, codes: Codes) -> Floats:
        """Give each config's place on the ladder, from 0 to 1; half-way where there is no ladder."""
        if self.ladder is None:
            return np.full(len(codes), _MIDDLE)
        return self._places[self.ladder][codes[:, self.ladder], 0]


def _places(parameter: Parameter) -> Floats:
    """Give level by axis, one axis for numbers and one per word otherwise; the last level is that of not counting."""
    values = parameter.values
    if any(isinstance(value, str) for value in values):
        return np.vstack([np.eye(len(values)) / math.sqrt(2), np.full(len(values), 0.0)])
    numbers = np.array(values, dtype=float)
    line = np.log(numbers) if parameter.name == LADDER else np.argsort(np.argsort(numbers)).astype(float)
    span = max(float(np.ptp(line)), 1e-9)
    return np.append((line - line.min()) / span, _MIDDLE)[:, None]


def _apart(places: Floats) -> Floats:
    return ((places[:, None, :] - places[None, :, :]) ** 2).sum(axis=-1)
