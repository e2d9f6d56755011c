"""Measures what the sampling of devices costs a trainer.

    python -m benchmarks.costs.overhead [--devices 0,1] [--num-envs 8192] [--rounds 60] [--turn-seconds 1]

One long run of the reference trainer takes turns of whole iterations, without sampling and with the tuner's. Each round
reverses the order. A round compares samples per second with its own turn without sampling, so a slow drift does not
count.
"""

import math
import random
import sys
import time
from bisect import bisect
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from tuner.devices.found import describe_machine
from tuner.probe.probe_plan import Answer, DeviceSource, LinePatterns, MonotonicClock, Next, OutputLine, Slot
from tuner.probe.process import Process, reserved_port
from tuner.probe.progress_reader import ProgressReader
from tuner.probe.result import DeviceSample, ProbeResult
from tuner.probe.run import run
from tuner.probe.series import SamplingRecorder
from tuner.probe.window import Mark, Marks
from tuner.running.job import Workbench, open_workbench
from tuner.study.cases import select

OFF, TUNER = "off", "tuner"
WARM_UP_ITERATIONS = 3
RESAMPLES = 10_000


class Alternating:
    """A recorder that changes the way of sampling from turn to turn."""

    def __init__(self, source: DeviceSource, sample_s: float, rounds: int, turn_s: float) -> None:
        self.source = source
        self.lost = None
        self._sample_s = sample_s
        self._recorder: SamplingRecorder | None = None
        self._turn_s = turn_s
        self._left = [way for number in range(rounds) for way in ((OFF, TUNER) if number % 2 else (TUNER, OFF))]
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
            return Answer(Next.GO, next_result_s=0.0)  # a turn may begin at each mark
        self.stop()
        way = self._left.pop() if self._left else ""
        self.turns.append((now_s, way))
        if way == TUNER:
            self._recorder = SamplingRecorder(self.source, MonotonicClock(), self._sample_s)
            self._recorder.start(*self._origin)
        return Answer(Next.GO, next_result_s=0.0) if way else Answer(Next.ENOUGH)

    def samples(self) -> list[DeviceSample]:
        return []

    def stop(self) -> None:
        if self._recorder is not None:
            self._recorder.stop()


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
    marks = Marks(len(slot.devices))
    for report in filter(None, map(reader.feed, lines)):
        marks.add(report)
    return marks.complete


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
    means = sorted(fmean(draw.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return means[round(0.025 * RESAMPLES)], means[round(0.975 * RESAMPLES) - 1]


def main(
    devices: Annotated[str, typer.Option()] = "auto",
    num_envs: Annotated[int, typer.Option(help="per device")] = 64,
    rounds: Annotated[int, typer.Option()] = 60,
    turn_seconds: Annotated[float, typer.Option(help="at least, in whole iterations")] = 1.0,
) -> None:
    bench = open_workbench("reference", devices=devices)
    recorder = Alternating(bench.source, bench.spec.probe.sample_seconds, rounds, turn_seconds)
    with TemporaryDirectory() as folder:
        found = run_in_turns(bench, num_envs, recorder, Path(folder).resolve() / "turns")
    changes_pct = [100 * math.log(one[TUNER] / one[OFF]) for one in found]  # a ratio's mean would favour noise
    table = Table("sampling", "samples/s", "change, %", "95 % interval", box=box.MARKDOWN)
    table.add_row(OFF, f"{fmean(one[OFF] for one in found):,.0f}")
    cells = f"{fmean(changes_pct):+.2f}", "{:+.2f} to {:+.2f}".format(*interval(changes_pct))
    table.add_row(TUNER, f"{fmean(one[TUNER] for one in found):,.0f}", *cells)
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(describe_machine(bench.source), table, sep="\n")


if __name__ == "__main__":
    typer.run(main)
