"""What a session saves, and whether it tells the same: every config warm, one after another, then each again cold.

    python benchmarks/warm.py --case deepmimic_pi_plus_ppo --set num_envs=1024 --set num_envs=1024,agent_variant=default

Warm probes pay for their session in the row of the config that started it. The goals: readings that agree within
their error bars, and at most 0.3 of the device-seconds of cold probes over a whole grid.
"""

from contextlib import closing
from math import hypot
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from probing import Bench, chosen
from rich import box
from rich.console import Console
from rich.table import Table

from tuner.devices.base import describe_machine
from tuner.probe.metrics import error, value
from tuner.probe.result import ProbeResult
from tuner.study.cases import select
from tuner.workbench import Prober, open_workbench

HEADS = (
    "config",
    "warm",
    "±",
    "cold",
    "±",
    "apart",
    "in errors",
    "of that start, s",
    "warm, device-s",
    "cold, device-s",
    "warm, MiB",
    "cold, MiB",
)


def compared(warm: ProbeResult, cold: ProbeResult, objective: str, devices: int) -> list[str]:
    """Give a row's cells after the config."""
    values, errors = [value(one, objective) for one in (warm, cold)], [error(one, objective) for one in (warm, cold)]
    if None in values or None in errors:
        kinds = [str(one.failure.kind) if one.failure else "ok" for one in (warm, cold)]
        return [kinds[0], "", kinds[1], "", "", "", f"{warm.ready_s or 0.0:.0f}", *_spent(warm, cold, devices)]
    (warm_value, cold_value), (warm_error, cold_error) = map(_known, (values, errors))
    apart = warm_value - cold_value
    numbers = [f"{warm_value:.2f}", f"{warm_error:.2f}", f"{cold_value:.2f}", f"{cold_error:.2f}", f"{apart:+.2f}"]
    in_errors = f"{abs(apart) / hypot(warm_error, cold_error):.1f}"
    return [*numbers, in_errors, f"{warm.ready_s or 0.0:.0f}", *_spent(warm, cold, devices)]


def _known(numbers: list[float | None]) -> list[float]:
    return [number for number in numbers if number is not None]


def _spent(warm: ProbeResult, cold: ProbeResult, devices: int) -> list[str]:
    peaks_mib = [value(one, "mem_peak_mib") for one in (warm, cold)]
    return [*(f"{devices * one.total_s:.0f}" for one in (warm, cold)), *(f"{peak:,.0f}" for peak in peaks_mib if peak)]


def main(
    study: Annotated[str, typer.Option()] = "pi_plus",
    case: Annotated[str, typer.Option()] = "deepmimic_pi_plus_ppo",
    settings: Annotated[list[str] | None, typer.Option("--set", help="num_envs=N,…, once per config")] = None,
    devices: Annotated[str | None, typer.Option()] = None,
) -> None:
    bench = open_workbench(study, devices=devices)
    (known,) = select(bench.trainer.cases(), [case])
    configs = chosen(bench.space_for(known), settings or [])
    table = Table(*HEADS, box=box.MARKDOWN, title=f"{bench.spec.name}/{case}: {bench.spec.objective}")
    with TemporaryDirectory() as folder, closing(Prober(bench)) as prober:
        probing = Bench(bench, known, prober, Path(folder).resolve())
        warm = [probing.probe(config, warm=True) for config in configs]
        cold: list[ProbeResult] = []
        for config, of_warm in zip(configs, warm, strict=True):
            cold.append(probing.probe(config))
            row = compared(of_warm, cold[-1], bench.spec.objective, len(bench.devices))
            table.add_row(" ".join(map(str, config.values())), *row)
            print(*config.values(), *row, sep=" | ", flush=True)  # as they come: a machine may be taken away
    console = Console(width=180)
    console.print(describe_machine(bench.source))
    console.print(table)
    share = fmean(one.total_s for one in warm) / fmean(one.total_s for one in cold)
    console.print(f"a warm probe took {share:.2f} of a cold one on average, sessions' starts included")


if __name__ == "__main__":
    typer.run(main)
