"""Predicts what grows in a straight line with the rung: memory, seconds of a start, seconds of a run. Pure."""

from collections.abc import Sequence

import numpy as np

from tuner.search.arrays import Floats
from tuner.study.space import VARIANT, Config, Space

GROWN, SPREAD = 0.5, 0.4
"""The share of the first measured amounts that is expected to come from the rung, and its standard deviation.

The rest of the amount is expected to be there on any rung.
"""
FACTOR = 0.5
"""The standard deviation of the factor by which two similar cases differ.

On an H200, the pi_plus cases of two methods differed in memory by the factor 1.5.
"""
DIFFERENCE = 0.5
"""How far the lines of similar cases differ beside that factor, as a share of how far the lines of any cases differ."""


Amounts = tuple[Sequence[Config], Sequence[float]]
"""Configs of one case, and the amount that was measured for each."""


class Growth:
    """A straight line through the measured amounts: a constant, and an amount per unit of the ladder.

    Each variant adds a little to both. The fit is Bayesian linear regression with errors that are a share of the amount
    (Bishop, "Pattern Recognition and Machine Learning", 2006, 3.50 and 3.58). The prior is scaled by the measured
    amounts, or comes from a similar case.
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
        prior: "Growth | None" = None,
    ) -> None:
        """`error`: the standard error of a measured amount. `variants`: how far the amounts of two variants differ.

        Both are shares of the amount. `grown`: see `GROWN`. `prior`: the growth in a similar case. Without `prior`,
        there must be at least one measured amount.
        """
        self._others, self._ladder = space.values(VARIANT)[1:], space.ladder
        self._error = error
        rows, wanted = self._rows(configs), np.asarray(amounts, dtype=float)
        self._scale = prior._scale if prior else self._scale_of(rows)
        self._unit = prior._unit if prior else float(wanted.mean())
        spread = self._unit * np.array([SPREAD, SPREAD, *[max(variants, 1e-6)] * 2 * len(self._others)])
        usual, doubt = prior._as_prior(spread) if prior else (self._unit * self._split(grown), np.diag(spread**2))
        certain = np.linalg.inv(doubt)
        weighed = rows / self._scale / (error * wanted)[:, None]
        self._spread = np.linalg.inv(weighed.T @ weighed + certain)
        self._most_probable = self._spread @ (weighed.T @ np.full(len(wanted), 1.0 / error) + certain @ usual)

    def expect(self, configs: Sequence[Config]) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of the amount that a probe of each config will show."""
        rows = self._rows(configs) / self._scale
        mean = rows @ self._most_probable
        return mean, np.sqrt(np.einsum("ij,jk,ik->i", rows, self._spread, rows) + (self._error * mean) ** 2)

    def _as_prior(self, spread: Floats) -> tuple[Floats, Floats]:
        """Return mean and covariance that this line gives for the line of a similar case.

        `spread`: the standard deviations of a line of which nothing is known.
        """
        line = self._most_probable
        return line, self._spread + FACTOR**2 * np.outer(line, line) + np.diag((DIFFERENCE * spread) ** 2)

    def _split(self, grown: float) -> Floats:
        return np.array([1.0 - grown, grown, *[0.0, 0.0] * len(self._others)])

    def _scale_of(self, rows: Floats) -> Floats:
        scale = np.maximum(np.abs(rows).mean(axis=0), 1e-9)
        scale[2:] = np.tile(scale[:2], len(self._others))
        return scale

    def _rows(self, configs: Sequence[Config]) -> Floats:
        rungs = [0.0 if self._ladder is None else float(config.get(self._ladder, 0.0)) for config in configs]
        line = np.array([np.ones(len(configs)), rungs])
        variants = [config.get(VARIANT) for config in configs]
        parts = [line * np.array([variant == other for variant in variants]) for other in self._others]
        return np.concatenate([line, *parts]).T


def inherited(
    space: Space, known: Sequence[Amounts], *, error: float, variants: float, grown: float = GROWN
) -> Growth | None:
    """Return the growth in the last of several similar cases. Each case has the growth of the case before as its prior.

    None where no case has a measured amount. `error`, `variants` and `grown`: see `Growth`.
    """
    growth = None
    for configs, amounts in known:
        if configs or growth:
            growth = Growth(space, configs, amounts, error=error, variants=variants, grown=grown, prior=growth)
    return growth
