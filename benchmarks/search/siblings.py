"""Measures what a search gains from a sibling, a similar case that was searched before.

    python -m benchmarks.search.siblings --apart 0 --seeds 8
    python -m benchmarks.search.siblings --table a.parquet --table b.parquet --seeds 20

Each pair of cases is invented, unless recorded tables are named: then each table is searched after each other one.
`surfaces` draws the elder case. The younger case differs by a factor of utilisation, of memory and of seconds, by what
each value adds, and by the trend along the ladder. `--apart` says how much. The elder is searched alone. The younger is
searched alone, with the elder as its sibling, and with the elder but without the values that it measured. Scores are
those of `compare.py`.
"""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import permutations, product
from pathlib import Path
from typing import Annotated

import optuna
import typer
from rich.console import Console

from benchmarks.search import surfaces
from benchmarks.search.ours import gain_on, took
from benchmarks.search.ours import search as searched_with
from benchmarks.search.report import of_table, over_all
from benchmarks.search.searching import Ground, Probing, Score, best_reading, search
from tuner.export.recorded_table import Table
from tuner.search.choosing import Strategy
from tuner.search.gain.chooser import by_gain
from tuner.search.observed import Sibling
from tuner.search.strategies import by_drawing
from tuner.study.space import LADDER, Config
from tuner.study.spec import SearchSpec

FACTOR, EFFECT_PCT, TREND_PCT = 0.15, 1.0, 2.0
"""The standard deviations between cases that are 1 apart. `FACTOR` is for the logarithms of the factors of memory and
seconds. `EFFECT_PCT` is for what a value adds, `TREND_PCT` for the whole ladder, both in points of utilisation."""
LEVELS = (0.7, 1.1)
"""The bounds of the factor of utilisation, however little the cases are apart."""
TPE_PROBES = 25


Pair = Callable[[int], tuple[Table, Table]]
"""Returns the tables of an elder and of a younger case for a seed."""


def main(
    apart: Annotated[float, typer.Option(help="how far the cases are apart; 0: they have the same best")] = 1.0,
    families: Annotated[list[str] | None, typer.Option("--family", help="of invented surfaces")] = None,
    recorded: Annotated[
        list[Path] | None, typer.Option("--table", help="recorded; each is the elder of others")
    ] = None,
    seeds: int = 8,
    samplers: Annotated[list[str] | None, typer.Option("--sampler", help="gain, tpe")] = None,
) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    console = Console(width=300)
    tables: list[dict[str, list[Score]]] = []
    for name, pair in _recorded(recorded) if recorded else _invented(families or surfaces.CHARACTERS, apart):
        scores: dict[str, list[Score]] = {}
        for seed, sampler in product(range(seeds), samplers or ("gain", "tpe")):
            for way, score in _scores(*pair(seed), seed, sampler):
                scores.setdefault(f"{sampler}, {way}", []).append(score)
        tables.append(scores)
        console.print(of_table(name, scores))
    console.print(over_all(tables))


def _invented(families: Sequence[str], apart: float) -> Iterator[tuple[str, Pair]]:
    for family in families:

        def pair(seed: int, family: str = family) -> tuple[Table, Table]:
            drawn = surfaces.surface(family, seed)
            younger = _younger(drawn, random.Random(f"younger {seed}"), apart)
            return surfaces.tabulated(drawn, "amp_invented"), surfaces.tabulated(younger, "add_invented")

        yield family, pair


def _recorded(paths: Sequence[Path]) -> Iterator[tuple[str, Pair]]:
    for elder, younger in permutations(map(Table.load, paths), 2):
        yield f"{elder.header.case}, then {younger.header.case}", lambda _, pair=(elder, younger): pair


def _scores(elder: Table, younger: Table, seed: int, sampler: str) -> Iterator[tuple[str, Score]]:
    """Search a younger case without its sibling, with it, and with all but its values."""
    before = _probing(elder, seed, sampler)
    _searched(before, sampler, [])
    siblings = list(_as_sibling(before, elder.header.case))
    yield "alone", _searched(_probing(younger, seed, sampler), sampler, [])
    yield "with a sibling", _searched(_probing(younger, seed, sampler), sampler, siblings)
    if sampler == "gain":
        without = [replace(one, readings=()) for one in siblings]
        yield "with a sibling, without its values", _searched(_probing(younger, seed, sampler), sampler, without)


def _as_sibling(probing: Probing, case: str) -> Iterator[Sibling]:
    """Yield what a search leaves to a similar case, if it has measured anything."""
    steps = [step for step in probing.steps if step.reading is not None]
    if best := best_reading(steps):
        known = [(step.config, step.reading, step.row.verdict.error) for step in steps if step.reading is not None]
        costs = [(step.config, took(step, step.row.cold_s - step.row.run_s)) for step in steps]
        yield Sibling(case=case, best=best, costs=costs, readings=known)


def _probing(table: Table, seed: int, sampler: str) -> Probing:
    return Probing(Ground(table), seed, sessions=True, most=TPE_PROBES if sampler == "tpe" else None)


def _searched(probing: Probing, sampler: str, siblings: Sequence[Sibling]) -> Score:
    chosen = _strategy(sampler, probing, siblings)
    return search(lambda probing: searched_with(probing, chosen), probing)


def _strategy(name: str, probing: Probing, siblings: Sequence[Sibling]) -> Strategy:
    space = probing.ground.space
    if name == "gain":
        return by_gain(space, gain_on(probing.ground, siblings), siblings)
    return by_drawing(space, SearchSpec(seed=probing.seed), siblings)


def _younger(elder: surfaces.Surface, draw: random.Random, apart: float) -> surfaces.Surface:
    ladder, level = elder.space[LADDER].values, draw.uniform(*LEVELS)
    memory, seconds = (math.exp(draw.gauss(0.0, FACTOR * apart)) for _ in range(2))
    trend = draw.gauss(0.0, TREND_PCT * apart)
    items = [(name, value) for name, one in elder.space.items() for value in one.values]
    effects = {item: draw.gauss(0.0, EFFECT_PCT * apart) for item in items}

    def utilisation(config: Config) -> float:
        height = ladder.index(config[LADDER]) / len(ladder) - 0.5
        own = level * elder.utilisation(config) + trend * height + sum(effects[item] for item in config.items())
        return min(99.0, max(1.0, own))

    return replace(
        elder,
        utilisation=utilisation,
        mib=lambda config: memory * elder.mib(config),
        ready_s=lambda config: seconds * elder.ready_s(config),
        run_s=lambda config: seconds * elder.run_s(config),
    )


if __name__ == "__main__":
    typer.run(main)
