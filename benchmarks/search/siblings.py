"""Measures what a search gains from a sibling, a similar case that was searched before.

    python -m benchmarks.search.siblings --apart 0 --seeds 8

Each pair of cases is invented. `surfaces` draws the elder case. The younger case differs by a factor of utilisation, of
memory and of seconds, by what each value adds, and by the trend along the ladder. `--apart` says how much. The elder is
searched alone, the younger alone and with the elder as its sibling. Scores are those of `compare.py`.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Annotated

import optuna
import typer
from rich.console import Console

from benchmarks.search import surfaces
from benchmarks.search.ours import gain_on
from benchmarks.search.ours import search as searched_with
from benchmarks.search.report import over_all
from benchmarks.search.searching import Ground, Probing, Score, Step, best_reading, search
from tuner.kept.trial import MEMORY_SHARE, RUN_S, START_S
from tuner.replay.table import Table
from tuner.search.choosing import Strategy
from tuner.search.searching import by_drawing, by_gain
from tuner.search.siblings import Cost, Sibling
from tuner.study.space import LADDER, Config
from tuner.study.spec import SearchSpec

FACTOR, EFFECT_PCT, TREND_PCT = 0.15, 1.0, 2.0
"""The standard deviations between cases that are 1 apart. `FACTOR` is for the logarithms of the factors of memory and
seconds. `EFFECT_PCT` is for what a value adds, `TREND_PCT` for the whole ladder, both in points of utilisation."""
LEVELS = (0.7, 1.1)
"""The bounds of the factor of utilisation, however little the cases are apart."""
TPE_PROBES = 25


def main(
    apart: Annotated[float, typer.Option(help="how far the cases are apart; 0: they have the same best")] = 1.0,
    families: Annotated[list[str] | None, typer.Option("--family", help="of invented surfaces")] = None,
    seeds: int = 8,
    samplers: Annotated[list[str] | None, typer.Option("--sampler", help="gain, tpe")] = None,
) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    tables: list[dict[str, list[Score]]] = []
    for family in families or surfaces.CHARACTERS:
        scores: dict[str, list[Score]] = {}
        for seed, sampler in product(range(seeds), samplers or ("gain", "tpe")):
            alone, helped = _pair(family, seed, sampler, apart)
            scores.setdefault(f"{sampler}, alone", []).append(alone)
            scores.setdefault(f"{sampler}, with a sibling", []).append(helped)
        tables.append(scores)
    Console(width=300).print(over_all(tables))


def _pair(family: str, seed: int, sampler: str, apart: float) -> tuple[Score, Score]:
    """Search a younger case without its sibling and with it."""
    drawn = surfaces.surface(family, seed)
    elder = _probing(surfaces.tabulated(drawn, "amp_invented"), seed, sampler)
    younger = surfaces.tabulated(_younger(drawn, random.Random(f"younger {seed}"), apart), "add_invented")
    _searched(elder, sampler, [])
    best = best_reading(elder.steps)
    known = [(step.config, step.reading, step.row.verdict.error) for step in elder.steps if step.reading is not None]
    siblings = [Sibling(case="amp_invented", best=best, costs=_costs(elder.steps), readings=known)] if best else []
    alone, helped = _probing(younger, seed, sampler), _probing(younger, seed, sampler)
    return _searched(alone, sampler, []), _searched(helped, sampler, siblings)


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


def _costs(steps: list[Step]) -> list[Cost]:
    """Return memory and seconds of the probes that have a value."""
    return [(step.config, _cost(step)) for step in steps if step.reading is not None]


def _cost(step: Step) -> dict[str, float]:
    (device,) = step.row.result.devices
    took = {
        MEMORY_SHARE: (device.mem_peak_mib or 0.0) / surfaces.CARD_MIB,
        START_S: step.row.cold_s - step.row.run_s,
        RUN_S: step.row.run_s,
    }
    return {name: amount for name, amount in took.items() if amount}


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
