"""What configs that were never probed will need and make: memory and samples/s, each with an interval. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.kept.trial import COMPLETE, KeptTrial
from tuner.search.needs import MEMORYLESS, Growth
from tuner.study import Config, Space, ladder_of, launched

MEMORY: Mapping[str, Any] = {"error": 0.004, "choices": 0.25}
SECONDS: Mapping[str, Any] = {"error": 0.15, "choices": 0.5, "bend": 1.5}
"""How exactly memory and the seconds of an iteration are measured, and how far a choice changes them, as logarithms."""
WIDE = 1.645
"""The standard deviations of an interval that holds 90 % of the values."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """An expected value, and the interval that holds the true value with 90 % probability."""

    mean: float
    low: float
    high: float

    def into(self, amount: float) -> "Interval":
        """Return the interval of an amount divided by this value."""
        return Interval(mean=amount / self.mean, low=amount / self.high, high=amount / self.low)


@dataclass(frozen=True, kw_only=True, slots=True)
class Foreseen:
    """What a config will need and make; None where nothing like it was measured."""

    memory_share: Interval | None
    """The share of a device's memory at its peak."""
    samples_per_s: Interval | None


def foresee(space: Space, trials: Sequence[KeptTrial], configs: Sequence[Config]) -> list[Foreseen]:
    """Return what each config will need and make, from the trials that ran.

    An iteration takes a fixed time and a time for each unit of the ladder; memory likewise. Both follow `Growth`.
    """
    ran = [one for one in trials if one.state == COMPLETE and not one.soaks]
    ladder = ladder_of(space)

    def height(config: Config) -> float:
        return float(config.get(ladder, 1)) if ladder else 1.0

    shares = [(launched(one.config), one.memory_share_pct / 100.0) for one in ran if one.memory_share_pct]
    seconds = [(launched(one.config), height(one.config) / one.samples_per_s) for one in ran if one.samples_per_s]
    needs = _expected(space, shares, configs, ignored=MEMORYLESS, **MEMORY)
    takes = _expected(space, seconds, configs, **SECONDS)
    return [
        Foreseen(memory_share=need, samples_per_s=take and take.into(height(config)))
        for config, need, take in zip(configs, needs, takes, strict=True)
    ]


def _expected(
    space: Space, known: Sequence[tuple[Config, float]], configs: Sequence[Config], **settings: Any
) -> Sequence[Interval | None]:
    """Return the expected amount of each config; `settings`: see `Growth`."""
    if not known:
        return [None] * len(configs)
    tried, amounts = zip(*known, strict=True)
    means, deviations = Growth(space, tried, amounts, **settings).logarithms(configs)
    ends = np.exp(means + WIDE * np.outer([0.0, -1.0, 1.0], deviations))
    return [Interval(mean=mean, low=low, high=high) for mean, low, high in ends.T.tolist()]
