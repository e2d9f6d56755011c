"""Compares all ways to search on all tables: GPU-seconds until the best config is found, and what was lost.

    python -m benchmarks.search.compare --table a.parquet --table b.parquet --seeds 100

A search sees a table's values with normal noise of their standard errors. The table's own values score it. A search has
found the best from the moment on from which the config with the best mean measurement stays within 1 % of the best
eligible config. A search that ends elsewhere counts as infinite. The oracle probes the best once, and nothing else.

Baselines and rows marked "cold" start the trainer for each probe. `tuner tpe` and `tuner gain` use sessions. They
measure their best once more by the plain command at the end.

`--invented plateau` draws another invented surface for each seed. `--invented noisy` draws one with a twist on which
nothing was developed.
"""

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

import optuna
import typer
from rich.console import Console

from benchmarks.search import methods, ours, smac, surfaces, twists
from benchmarks.search.report import Scores, of_table, over_all
from benchmarks.search.scorebook import Key, Scorebook
from benchmarks.search.searching import Ground, Method, Probing, Score, search
from tuner.export.recorded_table import Table

Source = Path | str
"""The file of a recorded table, or the character or twist of invented tables."""
INVENTED = (*surfaces.CHARACTERS, *twists.TWISTS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A way to search."""

    name: str
    method: Method
    sessions: bool = False
    whole: bool = False
    """Whether the search continues to its own end, however many probes that takes."""
    slow: bool = False
    """Whether a seed takes many seconds."""
    installed: bool = True


ENTRIES = (
    Entry(name="ladder from the top", method=methods.ladder, whole=True),
    Entry(name="grid", method=methods.grid, whole=True),
    Entry(name="grid, each config three times", method=methods.grid_thrice, whole=True),
    Entry(name="random", method=methods.random_search),
    Entry(name="random without repeats", method=methods.shuffled),
    Entry(name="coordinate descent", method=methods.coordinate_descent),
    Entry(name="hill climbing", method=methods.hill_climbing),
    Entry(name="Optuna TPE, failures FAIL", method=methods.tpe_fail),
    Entry(name="Optuna TPE, failures PRUNED", method=methods.tpe_pruned),
    Entry(name="Optuna GP", method=methods.gp, slow=True, installed=methods.GP_INSTALLED),
    Entry(name="SMAC3", method=smac.smac, slow=True, installed=smac.INSTALLED),
    Entry(name="tuner tpe, cold", method=ours.tpe),
    Entry(name="tuner tpe", method=ours.tpe, sessions=True),
    Entry(name="tuner gain, cold", method=ours.gain),
    Entry(name="tuner gain", method=ours.gain, sessions=True),
)


def main(
    tables: Annotated[list[Path] | None, typer.Option("--table", help="recorded by `tuner record`")] = None,
    invented: Annotated[list[str] | None, typer.Option(help=f"of {', '.join(INVENTED)}")] = None,
    seeds: int = 100,
    slow_seeds: Annotated[int, typer.Option(help="of the methods that take many seconds for each")] = 20,
    probes: Annotated[int, typer.Option(help="after which a search is ended")] = 100,
    only: Annotated[list[str] | None, typer.Option(help="of these methods")] = None,
    jobs: Annotated[int, typer.Option(help="processes")] = 1,
    scores: Annotated[Path | None, typer.Option(help="kept here; what is there is not run again")] = None,
) -> None:
    chosen = [entry for entry in ENTRIES if not only or entry.name in only]
    console = Console(width=300)
    book = Scorebook(scores)
    of_each: list[Scores] = []
    with ProcessPoolExecutor(jobs) as pool:
        for source in [*(tables or ()), *(invented or ())]:
            keys = {entry: _keys(entry, source, slow_seeds if entry.slow else seeds, probes) for entry in chosen}
            runs = {
                pool.submit(one_search, entry, source, seed, probes): (name, method, seed, probes)
                for entry in chosen
                if entry.installed
                for name, method, seed, probes in book.missing(keys[entry])
            }
            book.fill(runs)
            of_each.append({entry.name: book.known(keys[entry]) for entry in chosen})
            console.print(of_table(str(source), of_each[-1]))
    if len(of_each) > 1:
        console.print(over_all(of_each))


def _keys(entry: Entry, source: Source, seeds: int, probes: int) -> list[Key]:
    name = "/".join(source.with_suffix("").parts[-2:]) if isinstance(source, Path) else source
    return [(name, entry.name, seed, probes) for seed in range(seeds)]


def one_search(entry: Entry, source: Source, seed: int, probes: int) -> Score:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    most = None if entry.whole else probes
    return search(entry.method, Probing(ground(source, seed), seed, sessions=entry.sessions, most=most))


def ground(source: Source, seed: int) -> Ground:
    """Return what is searched: a recorded table, or the invented surface of this seed."""
    if isinstance(source, Path):
        return recorded(source)
    invent = twists.table if source in twists.TWISTS else surfaces.table
    return Ground(invent(source, seed))


@cache
def recorded(path: Path) -> Ground:
    return Ground(Table.load(path))


if __name__ == "__main__":
    typer.run(main)
