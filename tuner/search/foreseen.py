"""What configs will need and make, foretold from the trials that ran. Pure."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tuner.records.trial import COMPLETE, TrialRecord
from tuner.search.frontier import MEMORYLESS
from tuner.search.resource_model import Growth
from tuner.study import Config, Space, ladder_of, launched


class Interval(NamedTuple):
    """An expected value, and the interval that holds the true value with 90 % probability."""

    mean: float
    low: float
    high: float

    def quotient_of(self, amount: float) -> "Interval":
        """Return the interval of an amount divided by this value."""
        return Interval(mean=amount / self.mean, low=amount / self.high, high=amount / self.low)


class Foreseen(NamedTuple):
    """What a config will need and make; each is None where nothing like it was measured."""

    memory_share: Interval | None
    """The share of a device's memory at its peak."""
    samples_per_s: Interval | None


def foresee(space: Space, trials: Sequence[TrialRecord], configs: Sequence[Config]) -> list[Foreseen]:
    """Return what each config will need and make, from the trials that ran.

    An iteration takes a fixed time and a time for each unit of the ladder; memory likewise. Both follow `Growth`.
    """
    ran = [trial for trial in trials if trial.state == COMPLETE and not trial.soaks]
    ladder = ladder_of(space)

    def rung(config: Config) -> float:
        """Return the rung of a config; 1 without a ladder."""
        return float(config.get(ladder, 1)) if ladder else 1.0

    shares = [(launched(trial.config), trial.memory_share_pct / 100.0) for trial in ran if trial.memory_share_pct]
    # The time of an iteration, up to a constant factor: its samples are proportional to the rung.
    times = [(launched(trial.config), rung(trial.config) / trial.samples_per_s) for trial in ran if trial.samples_per_s]
    expected_shares = _expected(space, shares, configs, ignored=MEMORYLESS, error=0.004, choices=0.25)
    expected_times = _expected(space, times, configs, error=0.15, choices=0.5, bend=1.5)
    foreseen: list[Foreseen] = []
    for config, share, time in zip(configs, expected_shares, expected_times, strict=True):
        samples_per_s = time.quotient_of(rung(config)) if time else None
        foreseen.append(Foreseen(memory_share=share, samples_per_s=samples_per_s))
    return foreseen


def _expected(
    space: Space, measured: Sequence[tuple[Config, float]], configs: Sequence[Config], **settings: Any
) -> Sequence[Interval | None]:
    """Return the amount that each config is expected to need, as an interval; None for each where nothing was measured.

    Args:
        space: See `Growth`.
        measured: Each config that was measured, and its amount.
        configs: The configs of which an amount is expected.
        **settings: See `Growth`.
    """
    if not measured:
        return [None] * len(configs)
    tried, amounts = zip(*measured, strict=True)
    means, deviations = Growth(space, tried, amounts, **settings).logarithms(configs)
    ends = np.exp(means + 1.645 * np.outer([0.0, -1.0, 1.0], deviations))  # 90 % of a normal distribution
    return [Interval(mean=mean, low=low, high=high) for mean, low, high in ends.T.tolist()]
