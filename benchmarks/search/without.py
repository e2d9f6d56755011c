"""The sampler `gain` without one of its parts at a time.

The variants are subclasses of the classes in `tuner.search.gain`. They override single methods of these classes.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tuner.search.choosing import Choice, History, Price, confirm_measured, free
from tuner.search.gain.chooser import Gain
from tuner.search.gain.costs import Costs
from tuner.search.gain.outlook import Outlook
from tuner.search.gain.pool import Codes, Near, Pool
from tuner.search.gain.prospects import Goal
from tuner.search.gain.surrogate import Surrogate
from tuner.search.needs import Floats, Frontier
from tuner.search.observed import Observed
from tuner.study.spec import ProbeSpec

USUAL = Goal(ceiling=100.0)
"""The goal of a search for utilisation, in percent."""


class NoMemory(Costs):
    @property
    def fits(self) -> Floats:  # pyright: ignore[reportIncompatibleVariableOverride]
        return np.ones(len(self._pool.configs))


class NoTimeLimit(Costs):
    @property
    def slow(self) -> Floats:  # pyright: ignore[reportIncompatibleVariableOverride]
        return np.zeros(len(self._pool.configs))


class NotUpwards(Costs):
    def seconds(self, price: Price) -> Floats:
        return np.ones(len(self._pool.configs))


class NoOpenSession(Costs):
    def seconds(self, price: Price) -> Floats:
        return super().seconds(free)


class NoWayBack(Costs):
    def seconds(self, price: Price) -> Floats:
        starts = np.array([price(config) for config in self._pool.configs])
        return np.where(starts > 0.0, super().seconds(free), super().seconds(lambda _: 0.0))


class NoTrend(Surrogate):
    def _slopes(self, codes: Codes) -> Floats:
        return np.zeros(len(codes))


class NoCurve(Surrogate):
    def _curved(self, near: Near, lengths: Floats) -> Floats:
        return np.zeros(near.shape)


class OneByOne(Surrogate):
    def _parts(self, shape: Floats) -> tuple[Floats, Floats, Floats]:
        lengths, singles, others = super()._parts(shape)
        return lengths, singles, np.array([0.0, *others[1:]])


class TogetherOnly(Surrogate):
    def _parts(self, shape: Floats) -> tuple[Floats, Floats, Floats]:
        lengths, singles, others = super()._parts(shape)
        return lengths, np.zeros(len(singles)), others


class UsualShape(Surrogate):
    def _most_probable(self, start: Floats) -> Floats:
        return start


class NothingOwn(Surrogate):
    def _parts(self, shape: Floats) -> tuple[Floats, Floats, Floats]:
        lengths, singles, others = super()._parts(shape)
        return lengths, singles, np.array([others[0], 0.0, *others[2:]])


class NoFrontier(Outlook):
    def __init__(self, pool: Pool, observed: Observed, limits: ProbeSpec, goal: Goal) -> None:
        observed.frontier = Frontier()
        super().__init__(pool, observed, limits, goal)


class ReadOnce(Outlook):
    def __init__(self, pool: Pool, observed: Observed, limits: ProbeSpec, goal: Goal) -> None:
        super().__init__(pool, observed, limits, goal)
        self._open[self._seen] = False


class Gambling(Outlook):
    @cached_property
    def _runs(self) -> Floats:
        runs = self._costs.runs.copy()
        runs[self._seen] = 1.0
        return runs


class OneProbeAtATime(Outlook):
    def _promising(self, price: Price) -> Codes:
        return super()._promising(price)[:1]


class OneError(Outlook):
    @cached_property
    def _errors(self) -> Floats:
        return np.full(len(self._pool.configs), self._readings.error)


class NarrowTails(Outlook):
    @property
    def _freedom(self) -> float:
        return 1e6


class Undoubting(Outlook):
    def ended(self, price: Price) -> str | None:
        trifling = self.best is not None and self._trifling
        return super().ended(price) or ("one more reading gains nothing" if trifling else None)


class FromTheBottom(Outlook):
    def _first(self) -> int:
        return int(min(np.flatnonzero(self._open), key=lambda place: self._pool.heights[place]))


class NotFarUp(Outlook):
    def _upward(self) -> int | None:
        return None


class ByReading(Gain):
    def confirm(self, history: History, price: Price) -> Choice | None:
        return confirm_measured(history, price)


def with_parts(
    costs: type[Costs] = Costs, surrogate: type[Surrogate] = Surrogate, outlook: type[Outlook] = Outlook
) -> type[Outlook]:
    """Return an outlook that expects costs and values by other parts than usual."""

    class WithParts(outlook):
        def __init__(self, pool: Pool, observed: Observed, limits: ProbeSpec, goal: Goal) -> None:
            super().__init__(pool, observed, limits, goal)
            self._costs = costs(pool, observed, limits)

        @cached_property
        def _alone(self) -> Surrogate:
            return surrogate(self._pool.levels, self._readings)

    return WithParts


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """The part that is left out, and what replaces it."""

    without: str
    outlook: type[Outlook] = Outlook
    gain: type[Gain] = Gain
    goal: Goal = USUAL


ENTRIES = (
    Entry(without="nothing"),
    Entry(without="memory model", outlook=with_parts(costs=NoMemory)),
    Entry(without="dominance", outlook=NoFrontier),
    Entry(without="memory model, dominance", outlook=with_parts(costs=NoMemory, outlook=NoFrontier)),
    Entry(without="unlikely fits left out", outlook=Gambling),
    Entry(without="time limit foreseen", outlook=with_parts(costs=NoTimeLimit)),
    Entry(without="price in seconds", outlook=with_parts(costs=NotUpwards)),
    Entry(without="open session cheaper", outlook=with_parts(costs=NoOpenSession)),
    Entry(without="way back to an open session", outlook=with_parts(costs=NoWayBack)),
    Entry(without="trend over the ladder", outlook=with_parts(surrogate=NoTrend)),
    Entry(without="curve of the ladder", outlook=with_parts(surrogate=NoCurve)),
    Entry(without="interactions", outlook=with_parts(surrogate=OneByOne)),
    Entry(without="effects of single parameters", outlook=with_parts(surrogate=TogetherOnly)),
    Entry(without="each config's own", outlook=with_parts(surrogate=NothingOwn)),
    Entry(without="fitted lengths and sizes", outlook=with_parts(surrogate=UsualShape)),
    Entry(without="readings on purpose again", outlook=ReadOnce),
    Entry(without="errors of each config's own", outlook=OneError),
    Entry(without="series of probes", outlook=OneProbeAtATime),
    Entry(without="wide tails", outlook=NarrowTails),
    Entry(without="readings against doubt", outlook=Undoubting),
    Entry(without="begin half-way up", outlook=FromTheBottom),
    Entry(without="second far up", outlook=NotFarUp),
    Entry(without="belief names the best", gain=ByReading),
    Entry(without="ceiling of the objective", goal=Goal()),
)
