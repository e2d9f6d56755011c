"""Shows how much the iterations of a probe scatter, by utilisation. Standard errors are based on this.

    python -m benchmarks.probes.scatter --table TABLE --table TABLE

A row holds the configs whose mean utilisation lies in its band. `--skip 1` leaves out the first iteration of each
window. Tables that were recorded with a warm-up of one iteration need this.
"""

from collections.abc import Iterable
from itertools import pairwise
from math import sqrt
from pathlib import Path
from statistics import fmean, variance
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table as Printed

from tuner.export.recorded_table import Recorded, Table
from tuner.probe.steady import FULL_PCT

OBJECTIVE = "min_avg_util"
BANDS_PCT = (0, 50, 60, 70, 80, 90, 94, 97, 100)
HEADS = (
    "utilisation, %",
    "configs",
    "iterations",
    "their mean, s",
    "scatter, points",
    "of the mean, %",
    "of what is idle, %",
)


def iterations(recorded: Recorded) -> list[float]:
    """Return each iteration's utilisation in percent, from the means so far. All iterations count as equally long."""
    totals = [0.0, *(count * mean for count, mean in enumerate(recorded.series, start=1) if mean is not None)]
    return [later - earlier for earlier, later in pairwise(totals)] if len(totals) == len(recorded.series) + 1 else []


def row(band: str, probes: list[tuple[list[float], float]]) -> list[str]:
    """Return the row of a band. Each probe is its iterations' utilisation and the seconds of one iteration."""
    means = [fmean(values) for values, _ in probes]
    freedom = [len(values) - 1 for values, _ in probes]
    pooled = [variance(values) * free for (values, _), free in zip(probes, freedom, strict=True)]
    scatter, mean = sqrt(sum(pooled) / sum(freedom)), fmean(means)
    count = sum(len(values) for values, _ in probes)
    seconds = fmean(each_s for _, each_s in probes)
    shares = (100 * scatter / mean, 100 * scatter / (FULL_PCT - mean))
    return [
        band,
        str(len(probes)),
        str(count),
        f"{seconds:.1f}",
        f"{scatter:.2f}",
        *(f"{share:.1f}" for share in shares),
    ]


def read(tables: Iterable[Path], skip: int) -> list[tuple[list[float], float]]:
    """Return the utilisation of each iteration and the seconds of one, for configs with three iterations or more.

    Raises typer.BadParameter for a table of another objective.
    """
    opened = [Table.load(path) for path in tables]
    if other := [table.header.objective for table in opened if table.header.objective != OBJECTIVE]:
        raise typer.BadParameter(f"a table of {other[0]} has no utilisation; give tables of {OBJECTIVE}")
    rows = [recorded for table in opened for config in table.configs if (recorded := table.find(config)) is not None]
    return [
        (values, (recorded.result.window_s or 0.0) / recorded.result.iterations)
        for recorded in rows
        if not recorded.result.failure and len(values := iterations(recorded)[skip:]) > 2
    ]


def main(
    tables: Annotated[list[Path], typer.Option("--table", help="recorded by `tuner record`")],
    skip: Annotated[int, typer.Option(help="iterations at the beginning of each window")] = 0,
) -> None:
    probes = read(tables, skip)
    printed = Printed(*HEADS, box=box.MARKDOWN)
    for low, high in pairwise(BANDS_PCT):
        inside = [probe for probe in probes if low < fmean(probe[0]) <= high]
        if inside:
            printed.add_row(*row(f"{low} to {high}", inside))
    Console(width=180).print(printed)


if __name__ == "__main__":
    typer.run(main)
