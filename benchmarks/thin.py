"""What fewer updates save, and whether they tell the same: each config thin, whole and by the plain command in turn.

    python benchmarks/thin.py --case deepmimic_pi_plus_ppo --set num_envs=1024,update_epochs=40 --rounds 3

A machine is seldom the same for long: what is compared was measured one after the other, round by round. A plain
command ends the session, so that each round pays for a start; `--warm-only` leaves it out. What a probe takes is
counted from the end of its first iteration on.
"""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from probing import Bench, chosen, pooled
from rich import box
from rich.console import Console
from rich.table import Table

from tuner.devices.base import describe_machine
from tuner.probe.result import ProbeResult
from tuner.prober import open_prober
from tuner.study.cases import select
from tuner.workbench import open_workbench

HEADS = ("config", "updates", "value", "±", "an iteration of training, s", "it took, s", "the rest of the probe, s")
THIN, WHOLE, PLAIN = "thin", "whole", "plain command"


def row(probes: Sequence[ProbeResult], objective: str) -> list[str]:
    """Give the cells after config and kind: means over the probes, or why there is none."""
    reading = pooled(probes, objective)
    if reading.value is None:
        return reading.cells
    return [
        *reading.cells,
        f"{fmean((one.trained_s or 0.0) / one.iterations for one in probes):.2f}",
        f"{fmean((one.window_s or 0.0) / one.iterations for one in probes):.2f}",
        f"{fmean(one.total_s - (one.start_up_s or 0.0) for one in probes):.0f}",
    ]


def main(
    study: Annotated[str, typer.Option()] = "pi_plus",
    case: Annotated[str, typer.Option()] = "deepmimic_pi_plus_ppo",
    settings: Annotated[list[str] | None, typer.Option("--set", help="num_envs=N,…, once per config")] = None,
    devices: Annotated[str | None, typer.Option()] = None,
    rounds: Annotated[int, typer.Option(min=1, help="probes of each kind of each config")] = 2,
    warm_only: Annotated[bool, typer.Option("--warm-only", help="without the plain command")] = False,
) -> None:
    bench = open_workbench(study, devices=devices)
    (known,) = select(bench.trainer.cases(), [case])
    table = Table(*HEADS, box=box.MARKDOWN, title=f"{bench.spec.name}/{case}: {bench.spec.objective}")
    with TemporaryDirectory() as folder, closing(open_prober(bench)) as prober:
        probing = Bench(bench, known, prober, Path(folder).resolve())
        limits = {kind: probing.limits.model_copy(update={"thin": kind == THIN}) for kind in (THIN, WHOLE, PLAIN)}
        for config in chosen(bench.space_for(known), settings or []):
            probes: dict[str, list[ProbeResult]] = {kind: [] for kind in limits if not (warm_only and kind == PLAIN)}
            for kind in [*probes] * rounds:
                probes[kind].append(probing.probe(config, warm=kind != PLAIN, limits=limits[kind]))
            for kind, alike in probes.items():
                cells = [" ".join(map(str, config.values())), kind, *row(alike, bench.spec.objective)]
                table.add_row(*cells)
                print(*cells, sep=" | ", flush=True)  # as they come: a machine may be taken away
    console = Console(width=180)
    console.print(describe_machine(bench.source))
    console.print(table)


if __name__ == "__main__":
    typer.run(main)
