"""What configs that were never probed will need and make: memory and samples/s, each with an interval. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
    needs, takes = (
        _expected(space, shares, configs, MEMORY, MEMORYLESS),
        _expected(space, seconds, configs, SECONDS, frozenset()),
    )
    return [
        Foreseen(
            memory_share=need and Interval(mean=need[0], low=need[0] / need[1], high=need[0] * need[1]),
            samples_per_s=take
            and Interval(
                mean=height(config) / take[0],
                low=height(config) / (take[0] * take[1]),
                high=height(config) * take[1] / take[0],
            ),
        )
        for config, need, take in zip(configs, needs, takes, strict=True)
    ]


def _expected(
    space: Space,
    known: Sequence[tuple[Config, float]],
    configs: Sequence[Config],
    usual: Mapping[str, Any],
    ignored: frozenset[str],
) -> Sequence[tuple[float, float] | None]:
    """Return the expected amount of each config, and the factor by which the interval reaches up and down."""
    if not known:
        return [None] * len(configs)
    tried, amounts = [config for config, _ in known], [amount for _, amount in known]
    growth = Growth(space, tried, amounts, ignored=ignored, **usual)
    means, deviations = growth.logarithms(configs)
    return [(math.exp(mean), math.exp(WIDE * one)) for mean, one in zip(means, deviations, strict=True)]
