"""Probes of a scripted trainer on two cards, in the time of a fake clock."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tests_devices import RecordedProbe, ReplayedSource
from tests_replays import FakeClock, ReplayedRecorder, ScriptedTrainer, never, scripted_plan

from tuner.probe import Device, DeviceSample, LinePatterns, OutputLine, ProbeResult, Progress, Stop
from tuner.probe.run import run
from tuner.probe.window import Mark, Marks
from tuner.study import ProbeSpec

DEVICES = tuple(Device(name=f"cuda:{index}", model="x", uuid=f"GPU-0000000{index}-1111") for index in range(2))
CPU_RANKS = tuple(Device(name=f"cpu:{rank}", model="x") for rank in range(2))
PATTERN = LinePatterns(patterns=(r"it (?P<iteration>\S+)",))
READINGS = tuple(
    DeviceSample(t_s=tick / 4, device=device, util_pct=50.0 + 20 * device)
    for tick in range(2400)
    for device in range(2)
)


def marks(reports: Sequence[Progress], ranks: int, samples_per_iteration: float | None = None) -> list[Mark]:
    """Return the iterations that these reports complete."""
    known = Marks(ranks, samples_per_iteration)
    for report in reports:
        known.add(report)
    return known.complete


def probe(
    lines: Sequence[tuple[float, str]],
    *,
    patterns: LinePatterns = PATTERN,
    exit_at_s: float | None = None,
    exit_code: int = 0,
    stop: Stop = never,
    lost_at_s: float = math.inf,
    clock: FakeClock | None = None,
    readings: tuple[DeviceSample, ...] = READINGS,
    on_cpu: bool = False,
    price_per_hour: float | None = None,
    **limits: float,
) -> tuple[ProbeResult, ScriptedTrainer]:
    """Probe a trainer that writes these lines; `on_cpu` runs it on two CPU ranks and reads the lines as reports."""
    clock = clock or FakeClock()
    devices = CPU_RANKS if on_cpu else DEVICES
    recording = RecordedProbe(devices=devices, samples=READINGS, marks_s=(), total_s=600.0, exit_code=0)
    recorder = ReplayedRecorder(ReplayedSource(recording), readings, clock, lost_at_s)
    script = [OutputLine(t_s=t_s, text=text, stream="progress" if on_cpu else "console") for t_s, text in lines]
    trainer = ScriptedTrainer(clock, script, exit_at_s=exit_at_s, exit_code=exit_code)
    plan = scripted_plan(Path("out"), devices, ProbeSpec.model_validate(limits), patterns)
    plan = replace(plan, slot=replace(plan.slot, price_per_hour=price_per_hour))
    return run(plan, launch=trainer, recorder=recorder, clock=clock, stop=stop), trainer


def iterations(count: int, start_s: float = 30.0, step_s: float = 3.0) -> list[tuple[float, str]]:
    return [(start_s + step_s * number, f"it {number}") for number in range(count)]
