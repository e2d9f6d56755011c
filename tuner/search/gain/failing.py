"""Predicts which configs fail for another reason than memory or time, and names the choice that is the cause. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tuner.search.gain.pool import Codes, Levels, Near, jointly, singly
from tuner.search.gain.prospects import below
from tuner.search.needs import Floats
from tuner.study import Config, Value, written

USUAL = 0.7
"""How far above the threshold a config lies of which nothing is known: about nine in ten such configs run."""
RAN, FAILED = 1.0, -1.0
SOFTNESS = 0.5
"""How far around the threshold a config may run or fail."""
SINGLE, COMMON, NOISE = 1.0, 0.5, 0.1
"""The sizes of the effect of one value, of the effect of several values together, and of chance."""
SURE_AFTER = 2
"""A choice is named as the cause after so many failures in as many settings, and no success."""


class Failing:
    """The probability that each config runs, learnt from the configs that ran and those that failed.

    A Gaussian process over the same distances as those of the values is fitted to 1 for each config that ran and -1
    for each that failed (regression on labels: Rasmussen and Williams, 2006, 6.5). The effect of each value adds up,
    so that a value that fails everywhere is soon suspected everywhere.
    """

    def __init__(self, levels: Levels, ran: Codes, failed: Codes) -> None:
        self._levels = levels
        self._known = np.concatenate([ran, failed])
        self._any = bool(len(failed))
        if not self._any:
            return
        labels = np.concatenate([np.full(len(ran), RAN), np.full(len(failed), FAILED)])
        covariance = self._covariance(self._known) + NOISE**2 * np.eye(len(labels))
        self._weights = np.linalg.solve(covariance, labels - USUAL)

    def runs(self, codes: Codes) -> Floats:
        """Return the probability that no such failure hits each config; 1 while none is known."""
        if not self._any:
            return np.ones(len(codes))
        height = USUAL + self._covariance(codes) @ self._weights
        return below(0.0, -height, np.full(len(codes), SOFTNESS))

    def _covariance(self, rows: Codes) -> Floats:
        near = Near(self._levels.distances(self._known), rows)
        lengths = np.ones(len(near.squares))
        return singly(near, lengths, SINGLE**2 * lengths) + COMMON**2 * jointly(near, lengths)


@dataclass(frozen=True, kw_only=True, slots=True)
class Cause:
    """A choice with which every config failed."""

    name: str
    value: Value
    failed: int
    """The configs that failed with it."""

    def __str__(self) -> str:
        return f"{self.name}={written(self.value)}"


def causes(ran: Sequence[Config], failed: Sequence[Config]) -> list[Cause]:
    """Return the choices that failed in at least `SURE_AFTER` settings and never ran, although other values ran.

    Of choices that failed in the same configs, all are named: the failures do not tell them apart.
    """
    found = []
    for name, value in dict.fromkeys(item for config in failed for item in config.items()):
        settings = {_others(config, name) for config in failed if config.get(name) == value}
        ran_with = {config.get(name) for config in ran}
        if len(settings) >= SURE_AFTER and value not in ran_with and ran_with - {None}:
            found.append(Cause(name=name, value=value, failed=len(settings)))
    return found


def _others(config: Mapping[str, Value], name: str) -> frozenset[tuple[str, Value]]:
    return frozenset(item for item in config.items() if item[0] != name)
