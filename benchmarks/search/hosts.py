"""Measures what a search loses if it continues on another host that measures everything lower or higher.

    python -m benchmarks.search.hosts --table a.parquet --invented climb --seeds 20

On two pairs of H200s the same configs differ by 2 to 5 points. Here the first `--after` probes of a search run on one
host. On the other host all measurements are larger or smaller by `--by`; the seed decides which. The sampler either
knows which devices measured a config or does not. Scores are those of `compare.py`.
"""

import random
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import optuna
import typer
from rich.console import Console

from benchmarks.search import ours
from benchmarks.search.compare import Source, ground
from benchmarks.search.report import over_all
from benchmarks.search.searching import Ground, Probing, Score, Step, search
from tuner.study.space import Config

PROBES = 100
HERE, THERE = "here", "elsewhere"


class Moving(Probing):
    """Probes on another host after a number of probes."""

    def __init__(self, ground: Ground, seed: int, *, after: int, by: float, told: bool) -> None:
        super().__init__(ground, seed, sessions=True, most=PROBES)
        self._after, self._told = after, told
        self._factor = 1.0 + random.Random(seed).choice((-by, by))

    def probe(self, config: Config, *, cold: bool = False, confirms: bool = False) -> Step:
        """Probe a config on the host where the search is now."""
        step = super().probe(config, cold=cold, confirms=confirms)
        moved = len(self.steps) > self._after
        reading = step.reading * self._factor if moved and step.reading is not None else step.reading
        self.steps[-1] = replace(step, reading=reading, devices=(THERE if moved else HERE) if self._told else "")
        return self.steps[-1]


def one_search(source: Source, seed: int, after: int, by: float, told: bool) -> Score:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return search(ours.gain, Moving(ground(source, seed), seed, after=after, by=by, told=told))


def main(
    tables: Annotated[list[Path] | None, typer.Option("--table", help="recorded by `tuner record`")] = None,
    invented: Annotated[list[str] | None, typer.Option(help="as in search.py")] = None,
    after: Annotated[int, typer.Option(help="probes on the first host")] = 7,
    by: Annotated[list[float] | None, typer.Option(help="share by which readings differ there")] = None,
    seeds: int = 20,
    jobs: Annotated[int, typer.Option(help="processes")] = 1,
) -> None:
    ways = {"stays": (0.0, True)}
    for share in by or [0.03, 0.05]:
        ways |= {f"moves by {share:.0%}": (share, True), f"moves by {share:.0%}, not told": (share, False)}
    with ProcessPoolExecutor(jobs) as pool:
        runs = [
            {
                name: [pool.submit(one_search, source, seed, after, *way) for seed in range(seeds)]
                for name, way in ways.items()
            }
            for source in [*(tables or ()), *(invented or ())]
        ]
        scores = [{name: [run.result() for run in some] for name, some in of_each.items()} for of_each in runs]
    Console(width=300).print(over_all(scores))


if __name__ == "__main__":
    typer.run(main)
