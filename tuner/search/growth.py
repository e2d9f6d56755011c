"""What grows with the rung, in a straight line: memory in use, seconds of a start, seconds of a run. Pure."""

from collections.abc import Sequence

import numpy as np

from tuner.search.levels import Floats
from tuner.study.space import LADDER, VARIANT, Config, Space

HALF, HALF_SPREAD = 0.5, 0.4
"""Share of a first amount that was there before any environment, and that came with the environments."""


class Growth:
    """An amount + so much per environment, both a little different for each variant, fitted to what was measured.

    Bayesian linear regression whose errors are a share of the amount (Bishop, "Pattern Recognition and Machine
    Learning", 2006, 3.50 and 3.58). Its prior is scaled by the amounts themselves.
    """

    def __init__(
        self, space: Space, configs: Sequence[Config], amounts: Sequence[float], *, error: float, variants: float
    ) -> None:
        """As shares of an amount, `error` is the standard error of what is measured, `variants` how far they differ."""
        self._others = space.values(VARIANT)[1:]
        self._error = error
        rows, wanted = self._rows(configs), np.asarray(amounts, dtype=float)
        self._scale = np.maximum(np.abs(rows).mean(axis=0), 1e-9)
        self._scale[2:] = np.tile(self._scale[:2], len(self._others))
        self._unit = float(wanted.mean())
        usual = self._unit * np.array([HALF, HALF, *[0.0, 0.0] * len(self._others)])
        spread = self._unit * np.array([HALF_SPREAD, HALF_SPREAD, *[max(variants, 1e-6)] * 2 * len(self._others)])
        weighed = rows / self._scale / (error * wanted)[:, None]
        self._spread = np.linalg.inv(weighed.T @ weighed + np.diag(spread**-2))
        self._most_probable = self._spread @ (weighed.T @ np.full(len(wanted), 1.0 / error) + usual / spread**2)

    def expect(self, configs: Sequence[Config]) -> tuple[Floats, Floats]:
        """Give mean and standard deviation of the amount that a probe of each config will show."""
        rows = self._rows(configs) / self._scale
        mean = rows @ self._most_probable
        return mean, np.sqrt(np.einsum("ij,jk,ik->i", rows, self._spread, rows) + (self._error * mean) ** 2)

    def _rows(self, configs: Sequence[Config]) -> Floats:
        return np.array([self._row(config) for config in configs])

    def _row(self, config: Config) -> list[float]:
        line = [1.0, float(config.get(LADDER, 0.0))]
        return [*line, *(part * (config.get(VARIANT) == other) for other in self._others for part in line)]
