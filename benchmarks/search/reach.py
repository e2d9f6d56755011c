"""How cheap can a search on the invented scripts be? Searches that know more than any real one, beside `tuner gain`.

    python -m benchmarks.search.reach --seeds 40

A row per search, on the half to develop on. All but `tuner gain` begin with the user's own values, and know which
configs run, so none of their probes fails. Costs are in oracles: one oracle is one probe of the best config.

- **found** is the share of searches that end on a config within 1 % of the best.
- **to the best** is what a search has spent when it first probes such a config, in the median.
- **in all** is what it has spent at its end.

The second table breaks down what `tuner gain` spends: by the part of a probe, and by what its probes are for.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, product
from statistics import fmean, median
from typing import Annotated

import optuna
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.search import ours
from benchmarks.search.families import FAMILIES, seeds_of
from benchmarks.search.scripts import ScriptGround, script
from benchmarks.search.searching import Ground, Probing, Step, search
from tuner.study.space import Config, Space, Value, config_digest

GOAL, BUDGETS = 10.0, (10.0, 15.0, 20.0)
SHORTEST_S = 7.0
"""The shortest run that a probe of an invented script has."""
HELPS = 0.002
"""A change helps that truly gains more than this share."""
START, COMPILE, RUN = "start", "compile", "run"
CLIMB, BEFORE, AFTER = "larger batch than any before", "other new configs, before the best", "new configs, after it"
AGAIN, FAILED = "measured before", "failed"
_OFF: Config = {"compile": False, "compile_mode": "off"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Reached:
    """What one search reached. Costs are in oracles."""

    found: bool
    first: float
    """Until a config within 1 % of the best was probed; infinite where none was."""
    whole: float
    probes: int
    failed: int


def reached(ground: Ground, steps: Sequence[Step], costs: Sequence[float], end: Config | None) -> Reached:
    """Return what a search reached that made these probes and recommends `end`."""
    spent = list(accumulate(costs))
    return Reached(
        found=end is not None and ground.found(end),
        first=next((at for at, step in zip(spent, steps, strict=True) if ground.found(step.config)), math.inf),
        whole=spent[-1] if spent else 0.0,
        probes=len(steps),
        failed=sum(step.row.result.failure is not None for step in steps),
    )


class Seer:
    """Probes a script's table for a search that knows which configs run, and may ask for what is true."""

    def __init__(self, seed: int, *, readings: int | None = None, short: bool = False) -> None:
        """`readings`: the noisy readings of each config; None: one without noise. `short`: runs are the shortest."""
        self.ground = ScriptGround(script(seed))
        self._probing = Probing(self.ground, seed)
        self._readings, self._short = readings, short
        self._read: dict[str, float] = {}

    def read(self, config: Config) -> float:
        """Return what is read of a config. The first time, it is probed."""
        if (digest := config_digest(config)) not in self._read:
            steps = [self._probing.probe(config) for _ in range(self._readings or 1)]
            noisy = fmean(step.reading or 0.0 for step in steps)
            self._read[digest] = noisy if self._readings else self.truth(config)
        return self._read[digest]

    def truth(self, config: Config) -> float:
        """Return the true value of a config; minus infinity where it does not run."""
        return self.ground.row(config).value

    def changed(self, config: Config, names: Iterable[str], *, near: bool = False) -> list[Config]:
        """Return the configs that run and differ in one of these parameters. `near`: by the next number, or a word."""
        space = self.ground.space
        pairs = [(name, value) for name in names if name in config for value in _values(space, config, name, near)]
        wanted = [{**config, name: value} for name, value in pairs]
        drawn = [space.draw(lambda one, its=its: its.get(one.name, one.values[0])) for its in wanted]
        return [one for one in drawn if one in space and math.isfinite(self.truth(one))]

    def most(self, config: Config, names: Iterable[str]) -> Config:
        """Return the truly best of a config and all changes of one of these parameters."""
        return max([config, *self.changed(config, names)], key=self.truth)

    def reached(self, way: "Way") -> Reached:
        """Search and return what was reached."""
        end, best = way(self), self.ground.best
        steps = self._probing.steps
        costs = [step.gpu_s - max(0.0, step.row.run_s - SHORTEST_S) * self._short for step in steps]
        return reached(self.ground, steps, [cost / best.cold_s for cost in costs], end)


def _values(space: Space, config: Config, name: str, near: bool) -> list[Value]:
    values = space.values(name)
    at = values.index(config[name])
    numbers = near and not any(isinstance(one, str) for one in values)
    return [one for place, one in enumerate(values) if place != at and not (numbers and abs(place - at) > 1)]


Way = Callable[[Seer], Config]
"""A search. It returns its recommendation."""


def descent(seer: Seer, *, passes: int, greatest: bool = False) -> Config:
    """Measure each value of each parameter, and keep the best: in the space's order, or the greatest effect first."""
    config: Config = dict(seer.ground.own)
    for _ in range(passes):
        before, names = config, list(seer.ground.space.names)
        while names:
            name = max(names, key=lambda one: seer.truth(seer.most(config, [one]))) if greatest else names[0]
            names.remove(name)
            config = max([config, *seer.changed(config, [name])], key=seer.read)
        if config == before:
            break
    return config


def told_changes(seer: Seer, *, checks: bool = False) -> Config:
    """Measure only changes that truly help, the most helpful one of all parameters first.

    `checks`: at the end, measure each next value of each parameter once, and return what reads best.
    """
    config, names = dict(seer.ground.own), seer.ground.space.names
    seer.read(config)
    while seer.truth(better := seer.most(config, names)) > (1.0 + HELPS) * seer.truth(config):
        config = better
        seer.read(config)
    return max([config, *seer.changed(config, names, near=True)], key=seer.read) if checks else config


def told_best(seer: Seer, *, others: bool = False, near: bool = True) -> Config:
    """Measure the user's own values and the best, and return what reads best.

    `others`: also each value next to the best, to show that none is better. `near`: of numbers only the next ones.
    """
    best, names = seer.ground.best.result.config, seer.ground.space.names if others else ()
    return max([dict(seer.ground.own), best, *seer.changed(best, names, near=near)], key=seer.read)


_once, _twice, _short = partial(Seer, readings=1), partial(Seer, readings=2), partial(Seer, short=True)
_one_pass, _until = partial(descent, passes=1), partial(descent, passes=9)
_greatest, _greatest_until = partial(_one_pass, greatest=True), partial(_until, greatest=True)
_checked, _next = partial(told_changes, checks=True), partial(told_best, others=True)
SEERS: dict[str, tuple[Callable[[int], Seer], Way]] = {
    "all values, one pass, no noise": (Seer, _one_pass),
    "all values, one pass, one reading": (_once, _one_pass),
    "all values, until none helps, no noise": (Seer, _until),
    "all values, until none helps, one reading": (_once, _until),
    "… the greatest effect first, one pass, no noise, short runs": (_short, _greatest),
    "… the greatest effect first, until none helps, no noise, short runs": (_short, _greatest_until),
    "… the greatest effect first, until none helps, one reading": (_once, _greatest_until),
    "told which changes help, no noise": (Seer, told_changes),
    "told which changes help, two readings": (_twice, told_changes),
    "told which changes help, then the next values, no noise": (Seer, _checked),
    "told which changes help, then the next values, one reading": (_once, _checked),
    "told the best, measures only the own and the best, two readings": (_twice, told_best),
    "told the best, then the next values, one reading": (_once, _next),
    "told the best, then the next values, two readings": (_twice, _next),
    "told the best, then each other value, one reading": (_once, partial(_next, near=False)),
}
"""Name → what a search sees, and how it searches."""


def ended(probing: Probing, most: float = math.inf) -> Reached:
    """Return what a search reached before it spent more than this."""
    costs = [step.gpu_s / probing.ground.best.cold_s for step in probing.steps]
    count = sum(at <= most for at in accumulate(costs))
    end = probing.recommended[count - 1] if count else None
    return reached(probing.ground, probing.steps[:count], costs[:count], end)


def parts(probing: Probing) -> Iterator[tuple[str, Mapping[str, float]]]:
    """Yield the purpose of each probe, and the seconds of its parts."""
    ground, largest, known = probing.ground, 0.0, False
    for step in probing.steps:
        row, size = step.row, float(step.config["batch_size"])
        if row.result.failure:
            yield FAILED, {FAILED: step.gpu_s}
            continue
        plain = ground.row({name: _OFF.get(name, value) for name, value in step.config.items()})
        start_s, plain_s = row.cold_s - row.run_s, plain.cold_s - plain.run_s
        compile_s = 0.0 if plain.result.failure else max(0.0, start_s - plain_s)
        purpose = AGAIN if step.repeat else AFTER if known else CLIMB if size > largest else BEFORE
        yield purpose, {START: start_s - compile_s, COMPILE: compile_s, RUN: row.run_s}
        largest, known = max(largest, size), known or ground.found(step.config)


def page(rows: dict[str, list[Reached]]) -> Table:
    """Return a row per search."""
    columns = "found, %", "to the best", "in all, median", "mean", f"found within {GOAL:g}, %", "probes", "failed, %"
    shown = Table("", *columns, box=box.MARKDOWN)
    for name, ones in rows.items():
        shown.add_row(
            name,
            f"{100 * fmean(one.found for one in ones):.0f}",
            f"{median(one.first for one in ones):.1f}",
            f"{median(one.whole for one in ones):.1f}",
            f"{fmean(one.whole for one in ones):.1f}",
            f"{100 * fmean(one.found and one.whole <= GOAL for one in ones):.0f}",
            f"{fmean(one.probes for one in ones):.1f}",
            f"{100 * sum(one.failed for one in ones) / sum(one.probes for one in ones):.1f}",
        )
    return shown


def costs(probings: Sequence[Probing]) -> Table:
    """Return what `tuner gain` spends, in oracles per search: a row per purpose, a column per part."""
    spent: dict[str, Counter[str]] = {purpose: Counter() for purpose in (CLIMB, BEFORE, AFTER, AGAIN, FAILED, "all")}
    for probing in probings:
        for purpose, seconds in parts(probing):
            for row, (part, part_s) in product((purpose, "all"), seconds.items()):
                for column in (part, "all"):
                    spent[row][column] += part_s / probing.ground.best.cold_s / len(probings)  # pyright: ignore[reportArgumentType]
    columns = START, COMPILE, RUN, FAILED, "all"
    shown = Table("", *columns, box=box.MARKDOWN)
    for purpose, row in spent.items():
        shown.add_row(purpose, *(f"{row[column]:.1f}" for column in columns))
    return shown


def main(seeds: Annotated[int, typer.Option(help="tables of the half to develop on")] = 40) -> None:
    """Print what each search reached, and what `tuner gain` spends."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    tables = seeds_of("dev", seeds)
    rows = {name: [seer(seed).reached(way) for seed in tables] for name, (seer, way) in SEERS.items()}
    probings = [Probing(ScriptGround(script(seed)), seed, most=FAMILIES["scripts"].probes) for seed in tables]
    for probing in probings:
        search(ours.gain, probing)
    rows |= {f"tuner gain, ended at {most:g}": [ended(one, most) for one in probings] for most in BUDGETS}
    rows |= {"tuner gain": [ended(one) for one in probings]}
    console = Console(width=200)
    console.print(page(rows), costs(probings), sep="\n")


if __name__ == "__main__":
    typer.run(main)
