"""How soon a rank that is out of memory is named, and everything of its probe gone.

    python benchmarks/dead_rank.py [--study reference] [--devices 0,1]

Another process holds the memory of one card: of the second from the start (early: the rank fails while it builds), or
of the first once two iterations have been seen (late: the rank fails while it trains, with its allocator's cache off so
that the very next allocation meets the full card). Time counts from the first line that names the want of memory. The
predecessor's rule, a time limit of 420 s, is the baseline.
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import psutil
import typer
from rich.console import Console
from rich.table import Table

from tuner.devices.base import describe_machine
from tuner.probe.clock import MonotonicClock
from tuner.probe.plan import ProbePlan, Slot
from tuner.probe.port import reserved_port
from tuner.probe.process import Launcher, Process
from tuner.probe.protocols import Line
from tuner.probe.recorder import SamplingRecorder
from tuner.probe.result import FailureKind, ProbeResult
from tuner.probe.rules import RULES
from tuner.probe.run import run
from tuner.study.cases import select
from tuner.workbench import Workbench, open_workbench

PREDECESSOR_S = 420.0
OUT_OF_MEMORY = next(rule.pattern for rule in RULES if rule.kind is FailureKind.GPU_OOM)
LEFT_MIB = {"early": 700, "late": 16}
"""What the holder leaves of a card: early, room for a CUDA context but not for a trainer; late, nothing to speak of."""
HOLDER = """
import sys, torch
device, left_mib = torch.device(sys.argv[1]), int(sys.argv[2])
torch.zeros(1, device=device)
print("ready", flush=True)
sys.stdin.readline()
held = []
for mib in (4096, 512, 64, 16):
    while torch.cuda.mem_get_info(device)[0] > (mib + left_mib) * 2**20:
        held.append(torch.empty(mib * 2**20, dtype=torch.uint8, device=device))
print("full", flush=True)
sys.stdin.readline()
"""


class Holder:
    """A process that fills a card when told to."""

    def __init__(self, device: str, left_mib: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, device, str(left_mib)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid
        self._full = False
        self._expect("ready")

    def fill(self) -> None:
        """Take what is left of the card, once."""
        if not self._full:
            self._say()
            self._expect("full")
            self._full = True

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _say(self) -> None:
        assert self._process.stdin is not None  # noqa: S101 - a pipe was asked for
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def _expect(self, word: str) -> None:
        assert self._process.stdout is not None  # noqa: S101 - a pipe was asked for
        if self._process.stdout.readline().strip() != word:
            sys.exit("the card's memory could not be taken")


class Listening:
    """Launches for real and notes when the error line came and which processes there were."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self.error_s: float | None = None
        self.processes: set[psutil.Process] = set()

    def __call__(self, plan: ProbePlan) -> Process:
        process = self._launcher(plan)
        read = process.lines

        def lines(timeout_s: float) -> list[Line]:
            found = read(timeout_s)
            self.processes |= set(psutil.Process().children(recursive=True))
            for line in found:
                if self.error_s is None and OUT_OF_MEMORY.search(line.text):
                    self.error_s = line.t_s
            return found

        process.lines = lines
        return process


def probe(bench: Workbench, when: str, num_envs: int, folder: Path) -> tuple[ProbeResult, float | None, int]:
    """Probe with one card's memory taken; give the result, the error's time, and how many processes are left."""
    case = select(bench.trainer.cases(), ["deepmimic*"])[0]
    holder = Holder("cuda:1" if when == "early" else "cuda:0", LEFT_MIB[when])
    clock = MonotonicClock()
    listening = Listening(Launcher(clock))
    limits = bench.spec.probe.model_copy(update={"iterations": 1000, "max_seconds": PREDECESSOR_S})
    if when == "early":
        holder.fill()

    def stop(so_far: ProbeResult | None) -> str | None:
        if when == "late" and so_far is not None and so_far.iterations >= 2:
            holder.fill()
        return None

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
