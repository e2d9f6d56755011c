"""Breaks the GPU-seconds of `tuner gain` down by what its probes are for, in times the oracle.

    python -m benchmarks.search.spending --table a.parquet --invented plateau --seeds 100

The columns are means over the seeds, with the number of probes in brackets. Their sum is the mean of all GPU-seconds.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import optuna
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.search import ours
from benchmarks.search.compare import INVENTED, Source, ground
from benchmarks.search.searching import Probing, Step, search
from tuner.study.space import LADDER

BEGIN, EXPLORE, REPEAT, PLAIN, FAIL = "begin", "explore", "repeat", "plain end", "fail"


@dataclass(frozen=True, kw_only=True, slots=True)
class Spent:
    """What a probe took, in times the oracle."""

    purpose: str
    """`BEGIN`: the first probe, and the same config on a higher rung. `EXPLORE`: a new config. `REPEAT`: a config that
    had been measured. `PLAIN`: a measurement by the plain command. `FAIL`: a config that does not run."""
    whole: float
    start: float
    """The part of the probe that started the trainer; 0 where the probe failed."""


def main(
    tables: Annotated[list[Path] | None, typer.Option("--table", help="recorded by `tuner record`")] = None,
    invented: Annotated[list[str] | None, typer.Option(help=f"of {', '.join(INVENTED)}")] = None,
    seeds: int = 20,
    first_seed: int = 0,
    probes: Annotated[int, typer.Option(help="after which a search is ended")] = 100,
) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    shown = Table("table", "all", BEGIN, EXPLORE, REPEAT, PLAIN, FAIL, "of this, starts", box=box.MARKDOWN)
    for source in [*(tables or ()), *(invented or ())]:
        spent = [one for seed in range(first_seed, first_seed + seeds) for one in _searched(source, seed, probes)]
        shares = [
            f"{sum(one.whole for one in those) / seeds:.1f} ({len(those) / seeds:.1f})"
            for purpose in (BEGIN, EXPLORE, REPEAT, PLAIN, FAIL)
            for those in [[one for one in spent if one.purpose == purpose]]
        ]
        whole, starts = sum(one.whole for one in spent) / seeds, sum(one.start for one in spent) / seeds
        name = "/".join(source.with_suffix("").parts[-2:]) if isinstance(source, Path) else source
        shown.add_row(name, f"{whole:.1f}", *shares, f"{starts:.1f}")
    Console(width=160).print(shown)


def _searched(source: Source, seed: int, probes: int) -> list[Spent]:
    probing = Probing(ground(source, seed), seed, sessions=True, most=probes)
    oracle = search(ours.gain, probing).oracle_gpu_s
    devices = probing.ground.devices
    return [
        Spent(
            purpose=purpose,
            whole=step.gpu_s / oracle,
            start=0.0 if purpose == FAIL else (step.gpu_s - step.row.run_s * devices) / oracle,
        )
        for purpose, step in _purposes(probing.steps)
    ]


def _purposes(steps: list[Step]) -> Iterator[tuple[str, Step]]:
    begun = [{**step.config, LADDER: 0} for step in steps[:1]]
    for place, step in enumerate(steps):
        if step.row.result.failure:
            yield FAIL, step
        elif not step.warm:
            yield PLAIN, step
        elif place <= 1 and {**step.config, LADDER: 0} in begun:
            yield BEGIN, step
        else:
            yield (REPEAT if step.repeat else EXPLORE), step


if __name__ == "__main__":
    typer.run(main)
