"""Measures how soon a rank that is out of memory is named, and how soon all processes of its probe are gone.

    python -m benchmarks.probes.dead_rank [--study reference] [--devices 0,1]

Another process holds the memory of a card. Early: it holds the second card from the start, so the rank fails while it
builds. Late: it fills the first card after two iterations, so the rank fails while it trains. The late rank's allocator
has its cache off, so that its next allocation fails. Seconds count from the first line that reports missing memory. The
baseline is the predecessor's rule, a time limit of 420 s.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import psutil
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.probes.holder import Holder
from tuner.devices.found import describe_machine
from tuner.probe.kinds import FailureKind
from tuner.probe.probe_plan import ProbePlan, Slot
from tuner.probe.process import Process, reserved_port
from tuner.probe.protocols import Clock, Go, MonotonicClock, OutputLine
from tuner.probe.result import ProbeResult
from tuner.probe.run import run
from tuner.probe.series import SamplingRecorder
from tuner.running.workbench import Workbench, open_workbench
from tuner.study.cases import select

PREDECESSOR_S = 420.0
OUT_OF_MEMORY = FailureKind.GPU_OOM.rules[0].pattern
LEFT_MIB = {"early": 700, "late": 16}
"""The MiB that stay free on the card. Early they hold a CUDA context but no trainer; late they hold almost nothing."""


class Listening:
    """Launches real processes and records when the error line came and which processes existed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.error_s: float | None = None
        self.processes: set[psutil.Process] = set()

    def __call__(self, plan: ProbePlan) -> Process:
        process = Process(plan, self._clock)
        read = process.lines

        def lines(timeout_s: float) -> list[OutputLine]:
            found = read(timeout_s)
            self.processes |= set(psutil.Process().children(recursive=True))
            for line in found:
                if self.error_s is None and OUT_OF_MEMORY.search(line.text):
                    self.error_s = line.t_s
            return found

        process.lines = lines
        return process


def probe(bench: Workbench, when: str, num_envs: int, folder: Path) -> tuple[ProbeResult, float | None, int]:
    """Probe while another process holds a card's memory; return the result, the error's time and the processes left."""
    case = select(bench.trainer.cases(), ["deepmimic*"])[0]
    holder = Holder(bench.devices[1 if when == "early" else 0], LEFT_MIB[when])
    clock = MonotonicClock()
    listening = Listening(clock)
    limits = bench.spec.probe.model_copy(update={"iterations": 1000, "max_seconds": PREDECESSOR_S})
    if when == "early":
        holder.fill()

    def stop(so_far: ProbeResult | None) -> Go:
        if when == "late" and so_far is not None and so_far.iterations >= 2:
            holder.fill()
        return Go()

    config = bench.space_for(case).seeds(1)[0] | {"num_envs": num_envs}
    try:
        with reserved_port() as port:
            variables = {**bench.variables, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
            slot = Slot(devices=bench.devices, out_dir=folder / when, port=port, limits=limits, variables=variables)
            recorder = SamplingRecorder(bench.source, clock, limits.sample_seconds)
            plan = bench.trainer.plan(case, config, slot)
            result = run(plan, launch=listening, recorder=recorder, clock=clock, stop=stop)
    finally:
        holder.close()
    left = sum(process.is_running() for process in listening.processes if process.pid != holder.pid)
    return result, listening.error_s, left


def main(
    study: Annotated[str, typer.Option()] = "reference",
    devices: Annotated[str, typer.Option()] = "0,1",
    num_envs: Annotated[int, typer.Option()] = 16384,
) -> None:
    bench = open_workbench(study, devices=devices)
    table = Table("rank out of memory", "named", "rank", "error line at, s", "gone after, s", "predecessor, s", "left")
    with TemporaryDirectory() as folder:
        for when in ("early", "late"):
            result, error_s, left = probe(bench, when, num_envs, Path(folder).resolve())
            failure = result.failure
            gone_s = None if error_s is None else result.total_s - error_s
            table.add_row(
                when,
                failure.kind if failure else "ok",
                str(failure.rank) if failure else "",
                f"{error_s:.1f}" if error_s is not None else "never",
                f"{gone_s:.1f}" if gone_s is not None else "",
                f"{PREDECESSOR_S - (error_s or 0.0):.1f}",
                str(left),
            )
    console = Console(width=120)
    console.print(describe_machine(bench.source))
    console.print(table)


if __name__ == "__main__":
    typer.run(main)
