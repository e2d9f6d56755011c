"""What grows with the rung, in a straight line: memory in use, seconds of a start, seconds of a run. Pure."""

from collections.abc import Sequence

import numpy as np

from tuner.search.arrays import Floats
from tuner.study.space import LADDER, VARIANT, Config, Space

GROWN, SPREAD = 0.5, 0.4
"""Share of a first amount that came with the environments, the rest having been there before any; how sure both are."""
FACTOR = 0.5
"""Standard deviation of the factor between the amounts of two cases that are alike: 1.5 in memory between the pi_plus
cases of two methods on an H200."""
DIFFERENCE = 0.5
"""How far their lines differ beside that, as a share of how far lines of any cases differ."""


Line = tuple[Sequence[Config], Sequence[float]]
"""Configs of one case, and the amount that was measured of each."""


class Growth:
    """An amount + so much per environment, both a little different for each variant, fitted to what was measured.

    Bayesian linear regression whose errors are a share of the amount (Bishop, "Pattern Recognition and Machine
    Learning", 2006, 3.50 and 3.58). Its prior is scaled by the amounts themselves, or is what another case showed.
    """

    def __init__(
        self,
        space: Space,
        configs: Sequence[Config],
        amounts: Sequence[float],
        *,
        error: float,
        variants: float,
        grown: float = GROWN,
        elder: "Growth | None" = None,
    ) -> None:
        """As shares of an amount, `error` is the standard error of what is measured, `variants` how far they differ.

        Of a first amount, `grown` is the share that is expected to have come with the environments. `elder` is the
        growth in a case that is like this one; without it, something must have been measured.
        """
        self._others = space.values(VARIANT)[1:]
        self._error = error
        rows, wanted = self._rows(configs), np.asarray(amounts, dtype=float)
        self._scale = elder._scale if elder else self._scale_of(rows)
        self._unit = elder._unit if elder else float(wanted.mean())
        spread = self._unit * np.array([SPREAD, SPREAD, *[max(variants, 1e-6)] * 2 * len(self._others)])
        usual, doubt = elder._lent(spread) if elder else (self._unit * self._split(grown), np.diag(spread**2))
        certain = np.linalg.inv(doubt)
        weighed = rows / self._scale / (error * wanted)[:, None]
        self._spread = np.linalg.inv(weighed.T @ weighed + certain)
        self._most_probable = self._spread @ (weighed.T @ np.full(len(wanted), 1.0 / error) + certain @ usual)

    def expect(self, configs: Sequence[Config]) -> tuple[Floats, Floats]:
        """Give mean and standard deviation of the amount that a probe of each config will show."""
        rows = self._rows(configs) / self._scale
        mean = rows @ self._most_probable
        return mean, np.sqrt(np.einsum("ij,jk,ik->i", rows, self._spread, rows) + (self._error * mean) ** 2)

    def _lent(self, spread: Floats) -> tuple[Floats, Floats]:
        """Give what this line says of another case's, most probable and covariance; `spread` is that of any line."""
        line = self._most_probable
        return line, self._spread + FACTOR**2 * np.outer(line, line) + np.diag((DIFFERENCE * spread) ** 2)

    def _split(self, grown: float) -> Floats:
        return np.array([1.0 - grown, grown, *[0.0, 0.0] * len(self._others)])

    def _scale_of(self, rows: Floats) -> Floats:
        scale = np.maximum(np.abs(rows).mean(axis=0), 1e-9)
        scale[2:] = np.tile(scale[:2], len(self._others))
        return scale

    def _rows(self, configs: Sequence[Config]) -> Floats:
        return np.array([self._row(config) for config in configs]).reshape(len(configs), 2 + 2 * len(self._others))

    def _row(self, config: Config) -> list[float]:
        line = [1.0, float(config.get(LADDER, 0.0))]
        return [*line, *(part * (config.get(VARIANT) == other) for other in self._others for part in line)]


def inherited(
    space: Space, lines: Sequence[Line], *, error: float, variants: float, grown: float = GROWN
) -> Growth | None:
    """Give the growth in the last of several cases that are alike, each beginning with what the one before it showed.

    None where nothing was measured in any; `error`, `variants` and `grown` as for `Growth`.
    """
    growth = None
    for configs, amounts in lines:
        if configs or growth:
            growth = Growth(space, configs, amounts, error=error, variants=variants, grown=grown, elder=growth)
    return growth
