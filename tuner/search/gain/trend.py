"""What sizes and choices lead to expect of a speed where several sizes share the work and multiply it. Pure."""

import math
from collections.abc import Sequence

import numpy as np

from tuner.search.gain.pool import Codes
from tuner.search.observed import Measured
from tuner.search.resource_model import Floats, Growth, Prediction
from tuner.study import Space


class Trend:
    """A sum of parts, as the source of a `Surrogate` of the logarithms of speeds.

    The time of a step is the sum of its parts, such as computing, traffic and waiting. Each part is a product of powers
    of the sizes and of effects of the choices. The logarithm of the sum is made linear at the parts that fit best.
    """

    measured = 0.0
    """No measurement of another case stands behind it."""

    def __init__(self, space: Space, measured: Sequence[Measured]) -> None:
        """Fit the parts to the measurements of a case, which are logarithms; at least one is needed."""
        readings = [(entry.config, value.number) for entry in measured for value in entry.values]
        times = [math.exp(-number) for _, number in readings]  # up to a factor
        # Readings scatter by some hundredths; a switch changes a part by about a fifth.
        self._parts = Growth(space, [config for config, _ in readings], times, error=0.05, choices=0.2, shared=True)

    def predict(self, codes: Codes) -> Prediction:
        """Return what is expected of each config before any measurement."""
        means, effects = self._parts.linearised_at(codes)
        return Prediction(-means, np.sqrt(np.square(effects).sum(axis=1)))

    def covariance_between(self, rows: Codes, columns: Codes) -> Floats:
        """Return the covariance of two lists of configs before any measurement: row by column."""
        return self._parts.linearised_at(rows)[1] @ self._parts.linearised_at(columns)[1].T
