"""Searches by `gain` without one of its parts at a time, on the same tables and seeds as with all parts.

    python -m benchmarks.search.ablation --invented plateau --invented edge --seeds 40

`without.py` holds the variants.
"""

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Annotated

import optuna
import typer
from rich.console import Console

from benchmarks.search import ours
from benchmarks.search.compare import INVENTED, Source, ground
from benchmarks.search.report import of_table, over_all
from benchmarks.search.searching import Probing, Score, search
from benchmarks.search.without import ENTRIES, ByReading
from tuner.search.gain.chooser import by_gain
from tuner.search.gain.outlook import Outlook
from tuner.search.observed import Observed


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
