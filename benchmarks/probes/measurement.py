"""Compares repeated probes of a config with one long reference and with the error that the probes claim.

    python -m benchmarks.probes.measurement --case deepmimic_pi_plus_ppo --set num_envs=1024 --set num_envs=8192

For each config the script measures one window of `--reference-seconds` in a session, then `--warm` probes in the same
session. Then it measures one such window and `--cold` probes with a new trainer each. All probes end as the study says.

The same runs also show what a fixed number of iterations would have cost, and what the predecessor's rule would have
measured on the cold probes. That rule takes one value a second and leaves out the first 20, whether the trainer has
started or not.

The goals: the probes scatter by at most 1.5 times the error that they claim, and their mean is within 1 point of the
reference.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from math import nan
from pathlib import Path
from statistics import fmean, median, stdev
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.probes import old_rule
from benchmarks.probes.probing import Bench, Listening, chosen, window_of
from tuner.devices.found import describe_machine
from tuner.probe.metrics import error, value
from tuner.probe.result import ProbeResult
from tuner.running.prober import open_prober
from tuner.running.workbench import open_workbench
from tuner.study.cases import select
from tuner.study.space import Config

MANY = 10_000
WARM, COLD = "warm", "cold"


def rows(
    bench: Bench, source: Listening, config: Config, counts: dict[str, int], reference_s: float
) -> Iterator[list[str]]:
    """Measure one config; yield a row for the warm and one for the cold probes, each with its own reference."""
    limits, objective = bench.limits, bench.workbench.spec.objective
    long = limits.model_copy(update={"iterations": MANY, "max_seconds": limits.max_seconds + reference_s})
    for way, number in counts.items():
        if not number:
            continue
        reference = value(bench.probe(config, warm=way == WARM, limits=long, stop=window_of(reference_s)), objective)
        found, old = [], []
        for _ in range(number):
            source.begin()
            result = bench.probe(config, warm=way == WARM)
            if result.failure:
                yield [_named(config), way, f"{result.failure.kind}: {result.failure.detail}"]
                continue
            found.append(result)
            old.append(old_rule.reading(source.samples, len(source.devices)) if way == COLD else None)
        if reference is not None and len(found) > 1:
            read = [reading for reading in old if reading is not None]
            yield [_named(config), way, *_figures(bench, found, reference), f"{fmean(read):.1f}" if read else ""]


def _figures(bench: Bench, found: list[ProbeResult], reference: float) -> list[str]:
    objective, limits, devices = bench.workbench.spec.objective, bench.limits, len(bench.workbench.devices)
    values = [number for one in found if (number := value(one, objective)) is not None]
    claimed = fmean([known for one in found if (known := error(one, objective)) is not None] or [nan])
    iteration_s = median((one.window_s or 0.0) / one.iterations for one in found)
    spent_s = fmean(one.window_s or 0.0 for one in found)
    return [
        str(len(values)),
        f"{reference:.2f}",
        f"{fmean(values):.2f}",
        f"{fmean(values) - reference:+.2f}",
        f"{stdev(values):.2f}",
        f"{claimed:.2f}",
        f"{stdev(values) / claimed:.2f}",
        f"{devices * spent_s:.0f}",
        f"{devices * iteration_s * (limits.iterations - limits.warmup_iterations):.0f}",
        f"{devices * fmean(one.total_s for one in found):.0f}",
    ]


def _named(config: Config) -> str:
    return " ".join(map(str, config.values()))


HEADS = (
    *("config", "probes", "number", "reference", "mean", "off by", "spread", "claimed", "ratio"),
    *("window, device-s", "fixed count", "whole, device-s", "predecessor"),
)


def main(
    study: Annotated[str, typer.Option()] = "pi_plus",
    case: Annotated[str, typer.Option()] = "deepmimic_pi_plus_ppo",
    settings: Annotated[list[str] | None, typer.Option("--set", help="num_envs=N,…, once per config")] = None,
    devices: Annotated[str | None, typer.Option()] = None,
    warm: Annotated[int, typer.Option(help="0: no sessions at all")] = 5,
    cold: Annotated[int, typer.Option()] = 5,
    reference_seconds: Annotated[float, typer.Option(min=1)] = 200.0,
) -> None:
    opened = open_workbench(study, devices=devices)
    source = Listening(opened.source)
    opened = replace(opened, source=source)
    (known,) = select(opened.trainer.cases(), [case])
    table = Table(*HEADS, box=box.MARKDOWN, title=f"{opened.spec.name}/{case}: {opened.spec.objective}")
    with TemporaryDirectory() as folder, closing(open_prober(opened)) as prober:
        bench = Bench(opened, known, prober, Path(folder).resolve())
        for config in chosen(opened.space_for(known), settings or []):
            for row in rows(bench, source, config, {WARM: warm, COLD: cold}, reference_seconds):
                table.add_row(*row)
                print(*row, sep=" | ", flush=True)
    console = Console(width=180)
    console.print(describe_machine(source))
    console.print(table)


if __name__ == "__main__":
    typer.run(main)
