"""How good is the number of trials that a search expects to need yet, which the live view shows as time?

Repeats the search of each recorded table with noise, and compares the expectation before each trial with the trials
that followed, those that confirm the best included.

    python -m benchmarks.search.left [--searches 20] [TABLE…]
"""

import random
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median, quantiles
from typing import Annotated

import optuna
import typer
from rich import box
from rich.console import Console
from rich.table import Table as Shown

from tuner.export.recorded_table import Table
from tuner.replay import ReplayedProber, replay_bench
from tuner.running.events import Event, ProbeStarted
from tuner.running.job import Job
from tuner.running.loop import optimize
from tuner.store.database import Database

TABLES = Path("benchmarks/tables")


def expectations(table: Table, study: str, seed: int) -> list[tuple[float, int]]:
    """Return the expected and the actual number of trials left, this trial included, before each trial of a search."""
    lefts: list[float | None] = []

    def watch(event: Event) -> None:
        if isinstance(event, ProbeStarted):
            lefts.append(event.left)

    with tempfile.TemporaryDirectory() as folder:
        bench = replay_bench(table, study, runs=Path(folder))
        bench.folder.mkdir(parents=True)
        bench = replace(bench, spec=bench.spec.model_copy(update={"overrides": ()}))
        database = Database(f"sqlite:///{bench.folder}/study.db")
        prober = ReplayedProber(table, *bench.spec.objectives, noise=random.Random(seed))
        job = Job(
            bench=bench,
            database=database,
            probe=prober,
            watcher=watch,
            interrupted=lambda: False,
            open_session=lambda: prober.open_session,
            simulated=True,
        )
        optimize(job, bench.trainer.cases())
        database.close()
    return [(left, len(lefts) - place) for place, left in enumerate(lefts) if left is not None]


def main(
    tables: Annotated[list[Path] | None, typer.Argument()] = None, searches: int = 20, study: str = "pi_plus"
) -> None:
    """Print, per table and stage of a search, the ratio of expected to actual trials left."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    shown = Shown("table", "trials left", "expected", "median of expected / actual", "half of them", box=box.MARKDOWN)
    for path in tables or sorted((TABLES / "pi_plus_two_h200").glob("*.parquet")):
        table = Table.load(path)
        pairs = [pair for seed in range(searches) for pair in expectations(table, study, seed)]
        for low, high in ((13, 99), (7, 12), (4, 6), (2, 3), (1, 1)):
            ratios = [left / actual for left, actual in pairs if low <= actual <= high]
            if len(ratios) < 4:
                continue
            first, _, third = quantiles(ratios, n=4)
            expected = median(left for left, actual in pairs if low <= actual <= high)
            span = f"{low} to {high}" if high < 99 else f"{low} and more"
            shown.add_row(
                path.stem,
                span if low < high else str(low),
                f"{expected:.1f}",
                f"{median(ratios):.2f}",
                f"{first:.2f} to {third:.2f}",
            )
    Console(width=140).print(shown)


if __name__ == "__main__":
    typer.run(main)
