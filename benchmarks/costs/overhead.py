"""Measures what sampling costs a trainer, and how long the devices are idle between two probes.

    python -m benchmarks.costs.overhead [--devices 0,1] [--num-envs 8192] [--rounds 60] [--turn-seconds 1] [--trials 30]

One long run of the reference trainer takes turns of whole iterations: without sampling, with the tuner's sampling and,
where `nvidia-smi` exists, with a call of it per second. Each round reverses the order. A round compares samples per
second with its own turn without sampling, so a slow drift does not count. Then a study of a trainer that does nothing
goes through the whole loop (ask, probe, tell) on SQLite.
"""

import math
import random
import shutil
import subprocess
import sys
import time
from bisect import bisect
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from itertools import pairwise
from operator import sub
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from threading import Thread, current_thread
from typing import Annotated
from unittest.mock import Mock

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from tuner.devices.found import describe_machine
from tuner.probe.probe_plan import LinePatterns, ProbePlan, Slot
from tuner.probe.process import Process, reserved_port
from tuner.probe.progress_reader import ProgressReader
from tuner.probe.protocols import Answer, DeviceSource, Enough, Go, MonotonicClock, OutputLine, Stop
from tuner.probe.result import DeviceSample, ProbeResult
from tuner.probe.run import run
from tuner.probe.series import SamplingRecorder
from tuner.probe.window import Mark, marks
from tuner.running.loop import optimise
from tuner.running.workbench import Job, Workbench, open_workbench
from tuner.store.database import Database
from tuner.study.cases import select
from tuner.study.spec import StudySpec
from tuner.trainers.command import CommandTrainer

OFF, TUNER, SMI = "off", "tuner", "nvidia-smi"
ASK_SMI = f"while :; do {SMI} --query-gpu=utilization.gpu,memory.used,power.draw --format=csv; sleep 1; done"
WARM_UP_ITERATIONS = 3
RESAMPLES = 10_000
NOTHING = """
import time
for iteration in range(1000):
    time.sleep(0.005)
    print("it", iteration, flush=True)
"""


class Timed:
    """A source of devices that records the CPU time of the threads that read it."""

    def __init__(self, source: DeviceSource) -> None:
        self.label, self.devices = source.label, source.devices
        self._source = source
        self._pid = 0
        self.cpu_s: dict[Thread, float] = {}
        self.readings = 0

    def attach(self, pid: int) -> None:
        """Attach once, as in a probe, not for each turn."""
        if pid != self._pid:
            self._pid = pid
            self._source.attach(pid)

    def sample(self, t_s: float) -> Sequence[DeviceSample]:
        samples = self._source.sample(t_s)
        self.readings += 1
        self.cpu_s[current_thread()] = time.thread_time()
        return samples


class Alternating:
    """A recorder that changes the way of sampling from turn to turn."""

    def __init__(self, source: DeviceSource, sample_s: float, ways: Sequence[str], rounds: int, turn_s: float) -> None:
        self.source = source
        self.lost = None
        self._sample_s = sample_s
        self._recorder: SamplingRecorder | None = None
        self._turn_s = turn_s
        self._left = [way for number in range(rounds) for way in (ways if number % 2 else reversed(ways))]
        self._smi: subprocess.Popen[bytes] | None = None
        self._origin = (0, 0.0)
        self.turns: list[tuple[float, str]] = []  # when each began, and its way

    def start(self, pid: int, origin_s: float) -> None:
        self._origin = (pid, origin_s)

    def at_mark(self, so_far: ProbeResult | None) -> Answer:
        """Begin the next turn once this turn has been long enough. This is the probe's `stop`."""
        now_s = time.monotonic()
        if (
            so_far is None
            or so_far.iterations < WARM_UP_ITERATIONS
            or (self.turns and now_s - self.turns[-1][0] < self._turn_s)
        ):
            return Go()
        self.stop()
        way = self._left.pop() if self._left else ""
        self.turns.append((now_s, way))
        if way == TUNER:
            self._recorder = SamplingRecorder(self.source, MonotonicClock(), self._sample_s)
            self._recorder.start(*self._origin)
        elif way == SMI:
            self._smi = subprocess.Popen(["/bin/sh", "-c", ASK_SMI], stdout=subprocess.DEVNULL)
        return Go() if way else Enough()

    def samples(self) -> list[DeviceSample]:
        return []

    def stop(self) -> None:
        if self._recorder is not None:
            self._recorder.stop()
        if self._smi is not None:
            self._smi.kill()
            self._smi.wait()


def run_in_turns(bench: Workbench, num_envs: int, recorder: Alternating, folder: Path) -> list[dict[str, float]]:
    """Run the trainer once; return the samples per second of each way in each round."""
    case = select(bench.trainer.cases(), ["deepmimic*"])[0]
    config = {"num_envs": num_envs, "agent_variant": "default"}
    limits = bench.spec_for(case).probe.model_copy(update={"iterations": 1_000_000, "max_seconds": 3600.0})
    clock = MonotonicClock()
    with reserved_port() as port:
        slot = Slot(devices=bench.devices, out_dir=folder, port=port, limits=limits, variables=bench.variables)
        plan = bench.trainer.plan(case, config, slot)
        result = run(plan, launch=partial(Process, clock=clock), recorder=recorder, clock=clock, stop=recorder.at_mark)
    if result.failure:
        sys.exit(f"the trainer failed: {result.failure.kind}: {result.failure.detail}")
    return by_round(recorder.turns, iteration_ends(slot))


def iteration_ends(slot: Slot) -> list[Mark]:
    """Read the trainer's own marks, on the system's clock."""
    reader = ProgressReader(LinePatterns(), 0.0)
    lines = [OutputLine(t_s=math.inf, text=text, stream="progress") for text in slot.progress.read_text().splitlines()]
    return marks([mark for line in lines if (mark := reader.feed(line))], len(slot.devices))


def by_round(turns: Sequence[tuple[float, str]], ends: Sequence[Mark]) -> list[dict[str, float]]:
    """Return each turn's samples per second between the marks at which it began and ended, round by round."""
    rounds: list[dict[str, float]] = [{}]
    for (start_s, way), (end_s, _) in pairwise(turns):
        first, last = (ends[bisect(ends, at_s, key=lambda mark: mark.t_s) - 1] for at_s in (start_s, end_s))
        if way in rounds[-1]:
            rounds.append({})
        rounds[-1][way] = ((last.samples or 0) - (first.samples or 0)) / (last.t_s - first.t_s)
    return rounds


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % confidence interval of the mean by the bootstrap (Efron and Tibshirani, 1993, section 13.3)."""
    draw = random.Random(0)
    means = sorted(mean(draw.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return means[round(0.025 * RESAMPLES)], means[round(0.975 * RESAMPLES) - 1]


def idle_times_s(source: DeviceSource, trials: int, folder: Path) -> dict[str, list[float]]:
    """Run a study of a trainer that does nothing; return the seconds between its probes, part by part."""
    command = [sys.executable, "-I", "-S", "-c", NOTHING, "{num_envs}"]
    spec = StudySpec.model_validate(
        {
            "name": "nothing",
            "trainer": {"name": "command", "options": {"command": command, "progress": [r"it (?P<iteration>\d+)"]}},
            "space": {"num_envs": {"ladder": list(range(1, 2 * trials))}},
            "probe": {"window_seconds": 0.05},
            "pruner": {"name": "none"},
        }
    )
    trainer = CommandTrainer(spec.trainer)
    bench = Workbench(spec=spec, asked_for=spec.name, trainer=trainer, source=source, folder=folder, variables={})
    clock = MonotonicClock()
    started_s, marked_s, over_s = [], [], []

    def launch(plan: ProbePlan) -> Process:
        process = Process(plan, clock)
        started_s.append(clock.now())
        return process

    def probe(plan: ProbePlan, stop: Stop) -> ProbeResult:
        recorder = SamplingRecorder(source, clock, plan.slot.limits.sample_seconds)
        marked_s.append(0.0)

        def watched(so_far: ProbeResult | None) -> Answer:
            marked_s[-1] = clock.now()
            return stop(so_far)

        result = run(plan, launch=launch, recorder=recorder, clock=clock, stop=watched)
        over_s.append(clock.now())
        return result

    with closing(Database(f"sqlite:///{folder / 'study.db'}")) as database:
        job = Job(bench=bench, database=database, probe=probe, watcher=Mock(), interrupted=lambda: False, trials=trials)
        optimise(job, bench.trainer.cases())
    return {
        "last mark read to everything ended": list(map(sub, over_s, marked_s)),
        "everything ended to next trainer started": list(map(sub, started_s[1:], over_s)),
    }


def main(
    devices: Annotated[str, typer.Option()] = "auto",
    num_envs: Annotated[int, typer.Option(help="per device")] = 64,
    rounds: Annotated[int, typer.Option()] = 60,
    turn_seconds: Annotated[float, typer.Option(help="at least, in whole iterations")] = 1.0,
    trials: Annotated[int, typer.Option()] = 30,
) -> None:
    bench = open_workbench("reference", devices=devices)
    ways = [OFF, TUNER, *([SMI] if bench.devices[0].is_gpu and shutil.which(SMI) else [])]
    timed, sample_s = Timed(bench.source), bench.spec.probe.sample_seconds
    recorder = Alternating(timed, sample_s, ways, rounds, turn_seconds)
    with TemporaryDirectory() as folder:
        found = run_in_turns(bench, num_envs, recorder, Path(folder).resolve() / "turns")
        idle_s = idle_times_s(bench.source, trials, Path(folder).resolve())
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(describe_machine(bench.source))
    console.print(sampling_table(ways, found))
    reading_s = sum(timed.cpu_s.values()) / timed.readings
    console.print(
        f"sampling thread: {1e3 * reading_s:.2f} ms of CPU a reading, {100 * reading_s / sample_s:.2f} % of a core"
    )
    table = Table("between two probes", "median, s", "slowest, s", box=box.MARKDOWN)
    for what, times_s in idle_s.items():
        table.add_row(what, f"{median(times_s):.3f}", f"{max(times_s):.3f}")
    console.print(table)


def sampling_table(ways: Sequence[str], found: Sequence[dict[str, float]]) -> Table:
    table = Table("sampling", "samples/s", "change, %", "95 % interval", box=box.MARKDOWN)
    for way in ways:
        changes_pct = [100 * math.log(one[way] / one[OFF]) for one in found]  # a ratio's mean would favour noise
        row = [f"{mean(changes_pct):+.2f}", "{:+.2f} to {:+.2f}".format(*interval(changes_pct))] if way != OFF else []
        table.add_row(way, f"{mean(one[way] for one in found):,.0f}", *row)
    return table


if __name__ == "__main__":
    typer.run(main)
