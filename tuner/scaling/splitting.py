"""Independent work on cards that are unlike: how to divide it, and which workload belongs on which card. Pure."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.scaling.laws import Measure
from tuner.scaling.results import Mode, Point, Results
from tuner.scaling.rows import rate

MOST_PLANS = 100_000
"""The most ways to place workloads on cards that are compared one by one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Division:
    """How the independent work of one workload is divided among the cards."""

    workload: str
    size: int | None
    alone: tuple[Measure, ...]
    """Samples per second of each card while the other cards have no work."""
    first: tuple[Measure, ...]
    """Samples per second of each card while all cards work. They decide the shares."""
    second: tuple[Measure, ...]
    """The same, measured again. They check the shares."""

    @property
    def shares(self) -> tuple[float, ...]:
        """The share of the work that each card gets: in proportion to its own speed."""
        total = sum(one.value for one in self.first)
        return tuple(one.value / total for one in self.first)

    @property
    def sum_alone(self) -> Measure:
        """The samples per second that the cards would make together if they did not disturb each other."""
        errors = [one.error for one in self.alone if one.error is not None]
        known = len(errors) == len(self.alone)
        return Measure(sum(one.value for one in self.alone), math.hypot(*errors) if known else None)

    @property
    def throughput(self) -> Measure:
        """The samples per second until the last card has finished its share, with all cards at work."""
        return self._until_all_finish(self.shares)

    @property
    def even(self) -> Measure:
        """The same with equal shares."""
        return self._until_all_finish([1 / len(self.second)] * len(self.second))

    @property
    def best_card(self) -> int:
        """The card that is fastest alone."""
        return max(range(len(self.alone)), key=lambda card: self.alone[card].value)

    def _until_all_finish(self, shares: Sequence[float]) -> Measure:
        last = min(range(len(shares)), key=lambda card: self.second[card].value / shares[card])
        speed = self.second[last]
        return Measure(speed.value / shares[last], None if speed.error is None else speed.error / shares[last])


def divisions(results: Results) -> list[Division]:
    """Return the division of each workload and size that every card has measured alone, and twice beside the others."""
    cards = range(len(results.devices))
    found: list[Division] = []
    for workload, size in dict.fromkeys((one.workload, one.size) for one in results.points):
        points = [one for one in results.points if (one.workload, one.size) == (workload, size) and one.samples_per_s]
        alone = [_rates(points, "single", card) for card in cards]
        beside = [_rates([one for one in points if one.beside == len(cards)], "beside", card) for card in cards]
        if min(map(len, alone)) >= 1 and min(map(len, beside)) >= 2:
            found.append(
                Division(
                    workload=workload,
                    size=size,
                    alone=tuple(rates[0] for rates in alone),
                    first=tuple(rates[0] for rates in beside),
                    second=tuple(rates[1] for rates in beside),
                )
            )
    return found


def _rates(points: Sequence[Point], mode: Mode, card: int) -> list[Measure]:
    return [rate(one) for one in points if one.mode == mode and one.gpus == (card,)]


def placement(divisions: Sequence[Division]) -> Mapping[tuple[str, int | None], int]:
    """Return the card for each workload and size, so that all finish as early as possible.

    Each workload counts as much work as its fastest card does in the same time. Where there are more than `MOST_PLANS`
    ways, each workload goes in turn to the card on which it ends first.
    """
    if not divisions:
        return {}
    cards = range(len(divisions[0].alone))
    takes = [
        [max(rates) / own for own in rates] for rates in ([one.alone[c].value for c in cards] for one in divisions)
    ]

    def ends(plan: Sequence[int]) -> tuple[float, float]:
        loads = [sum(takes[work][card] for work, card in enumerate(plan) if card == place) for place in cards]
        return max(loads), sum(loads)

    if len(cards) ** len(divisions) <= MOST_PLANS:
        best: Sequence[int] = min(itertools.product(cards, repeat=len(divisions)), key=ends)
    else:
        best = []
        for _ in divisions:
            best = min(([*best, card] for card in cards), key=ends)
    return {(one.workload, one.size): card for one, card in zip(divisions, best, strict=True)}
