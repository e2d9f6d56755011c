"""Runs out of memory inside a session: how the failure is named, what is left, and whether the next probe works.

    python -m benchmarks.probes.session_oom [--study pi_plus] [--case deepmimic_pi_plus_ppo] [--set num_envs=1024]

The script makes three warm probes of one config. Before the second probe another process takes the memory of the second
card, so a rank of a session that has already served runs out of memory. Before the third probe that process ends.
"""

from contextlib import closing, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import psutil
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.probes.holder import Holder
from benchmarks.probes.probing import Bench, chosen
from tuner.devices.found import describe_machine
from tuner.probe.metrics import value
from tuner.probe.protocols import Answer, Enough, Go
from tuner.probe.result import ProbeResult
from tuner.running.prober import open_prober
from tuner.running.workbench import open_workbench
from tuner.study.cases import select

LEFT_MIB = 16
ITERATIONS = 5


class Seen:
    """A `Stop` that ends a probe after a few iterations and records which processes existed."""

    def __init__(self) -> None:
        self.processes: set[psutil.Process] = set()

    def __call__(self, so_far: ProbeResult | None) -> Answer:
        self.processes |= set(psutil.Process().children(recursive=True))
        return Enough() if so_far and so_far.window_s and so_far.iterations >= ITERATIONS else Go()

    def left(self, but: int | None) -> int:
        return sum(process.is_running() for process in self.processes if process.pid != but)


def main(
    study: Annotated[str, typer.Option()] = "pi_plus",
    case: Annotated[str, typer.Option()] = "deepmimic_pi_plus_ppo",
    setting: Annotated[str, typer.Option("--set", help="num_envs=N,…")] = "num_envs=1024",
    devices: Annotated[str | None, typer.Option()] = None,
) -> None:
    bench = open_workbench(study, devices=devices)
    (known,) = select(bench.trainer.cases(), [case])
    (config,) = chosen(bench.space_for(known), [setting])
    heads = ("second card", "outcome", "rank", "iterations", bench.spec.objective, "session ready, s", "in all, s")
    table = Table(*heads, "processes after it", "session after it", box=box.MARKDOWN, title=f"{known.name} {config}")
    with TemporaryDirectory() as folder, closing(open_prober(bench)) as prober:
        probing = Bench(bench, known, prober, Path(folder).resolve())
        for full in (False, True, False):
            seen = Seen()
            with Holder(bench.devices[1], LEFT_MIB) if full else nullcontext() as holder:
                if holder:
                    holder.fill()
                result = probing.probe(config, warm=True, stop=seen)
                left = seen.left(but=holder.pid if holder else None)
            failure, reading = result.failure, value(result, bench.spec.objective)
            table.add_row(
                "full" if full else "free",
                failure.kind if failure else "ok",
                str(failure.rank) if failure else "",
                str(result.iterations),
                "" if reading is None else f"{reading:.1f}",
                "" if result.ready_s is None else f"{result.ready_s:.1f}",
                f"{result.total_s:.1f}",
                str(left),
                "open" if prober.open_session else "ended",
            )
    console = Console(width=180)
    console.print(describe_machine(bench.source))
    console.print(table)


if __name__ == "__main__":
    typer.run(main)
