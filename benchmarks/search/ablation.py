"""Searches by `gain` without one of its parts at a time, on the same tables and seeds as with all parts.

    python -m benchmarks.search.ablation --invented plateau --invented edge --seeds 40

The variants are subclasses of the classes in `tuner.search.gain`. They override single methods of these classes.
"""

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated

import numpy as np
import optuna
import typer
from rich.console import Console

from benchmarks.search import ours
from benchmarks.search.compare import INVENTED, Source, ground
from benchmarks.search.report import of_table, over_all
from benchmarks.search.searching import Probing, Score, search
from tuner.search.arrays import Floats
from tuner.search.choosing import Choice, Price, confirm_measured, free
from tuner.search.frontier import Frontier
from tuner.search.gain.chooser import Gain
from tuner.search.gain.costs import Costs
from tuner.search.gain.goal import Goal
from tuner.search.gain.levels import Codes
from tuner.search.gain.nearness import Near, jointly, singly
from tuner.search.gain.outlook import Outlook
from tuner.search.gain.pool import Pool
from tuner.search.gain.surrogate import Surrogate
from tuner.search.history import History
from tuner.search.observed import Observed
from tuner.search.searching import by_gain
from tuner.study.spec import ProbeSpec

USUAL = Goal(ceiling=100.0)
"""The goal of a search for utilisation, in percent."""


class NoMemory(Costs):
    @property
    def memory(self) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return None


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
    def _curved(self, near: Near) -> Floats:
        return np.zeros(near.shape)


class OneByOne(Surrogate):
    def _effects(self, near: Near) -> Floats:
        return singly(near)


class TogetherOnly(Surrogate):
    def _effects(self, near: Near) -> Floats:
        return jointly(near)


class UsualShape(Surrogate):
    def _most_probable(self) -> Floats:
        return self._usual


class NothingOwn(Surrogate):
    def _most_probable(self) -> Floats:
        self._usual[-1] = -20.0
        return super()._most_probable()


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


class NarrowTails(Outlook):
    @property
    def _freedom(self) -> float:
        return 1e6


class Undoubting(Outlook):
    def ended(self, price: Price) -> str | None:
        trifling = self.best is not None and self._trifling(self._gain, self.best)
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
        def _surrogate(self) -> Surrogate:
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
    Entry(without="series of probes", outlook=OneProbeAtATime),
    Entry(without="wide tails", outlook=NarrowTails),
    Entry(without="readings against doubt", outlook=Undoubting),
    Entry(without="begin half-way up", outlook=FromTheBottom),
    Entry(without="second far up", outlook=NotFarUp),
    Entry(without="belief names the best", gain=ByReading),
    Entry(without="training hours, 98 % sure instead", goal=replace(USUAL, certainty=0.98)),
    Entry(without="ceiling of the objective", goal=Goal()),
)


def main(
    tables: Annotated[list[Path] | None, typer.Option("--table", help="recorded by `tuner record`")] = None,
    invented: Annotated[list[str] | None, typer.Option(help=f"of {', '.join(INVENTED)}")] = None,
    seeds: int = 40,
    first_seed: int = 0,
    probes: Annotated[int, typer.Option(help="after which a search is ended")] = 100,
    only: Annotated[list[str] | None, typer.Option(help="without these")] = None,
    jobs: Annotated[int, typer.Option(help="processes")] = 1,
) -> None:
    console = Console(width=300)
    of_each: list[dict[str, list[Score]]] = []
    chosen = [place for place, entry in enumerate(ENTRIES) if not only or entry.without in only]
    seeds_drawn = range(first_seed, first_seed + seeds)
    with ProcessPoolExecutor(jobs) as pool:
        for source in [*(tables or ()), *(invented or ())]:
            runs = {
                place: [pool.submit(one_search, place, source, seed, probes) for seed in seeds_drawn]
                for place in chosen
            }
            of_each.append({ENTRIES[place].without: [run.result() for run in those] for place, those in runs.items()})
            console.print(of_table(f"{source}, without", of_each[-1]))
    if len(of_each) > 1:
        console.print(over_all(of_each))


def one_search(place: int, source: Source, seed: int, probes: int) -> Score:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    entry = ENTRIES[place]

    class Without(entry.gain):
        def _outlook(self, observed: Observed) -> Outlook:
            return entry.outlook(self._pool, observed, self._limits, self._goal)

    def method(probing: Probing) -> None:
        given = probing.ground
        chosen = Without(given.space, given.header.limits, goal=entry.goal)
        ours.search(probing, by_gain(given.space, chosen), None if entry.gain is ByReading else chosen.best)

    return search(method, Probing(ground(source, seed), seed, sessions=True, most=probes))


if __name__ == "__main__":
    typer.run(main)
