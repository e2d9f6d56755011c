"""Probes faults with real processes, and compares the outcomes with what is expected."""

import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
from tests_replays import never

from tests.support.tests_faulty.scenarios import OK, RANKS, SCENARIOS, Scenario
from tests.support.tests_faulty.strikes import FLOOD_BYTES
from tuner.devices.cpu import CpuSource
from tuner.errors import TunerError
from tuner.probe import MonotonicClock, ProbePlan, ProbeResult, Process, SamplingRecorder, Slot
from tuner.probe.output import USUAL_BOUNDS, Bounds
from tuner.probe.quantities import BYTES_PER_MIB
from tuner.probe.run import run
from tuner.records.schema import record_of, storable_text
from tuner.records.trial import ProbeRecord, encode

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """The result of probing a fault."""

    got: str
    says: str
    """The detail of the failure as a database keeps it, or the text of the error."""
    named_s: float | None
    """The seconds from the fault to the result, when every process has ended; None where the fault did not strike."""
    left: tuple[str, ...]
    """The processes of the probe that still exist."""
    open_files: int
    """The number of file descriptors that this process opened and did not close."""
    result: ProbeResult | None = None
    """None where the probe raised an error."""

    def deviations(self, scenario: Scenario) -> list[str]:
        """Return the differences from the expected result."""
        found = []
        if self.got != scenario.expected or scenario.says not in self.says:
            found.append(f"{self.got}: {self.says}")
        if storable_text(self.says) != self.says:
            found.append(f"no database can store {self.says!r}")
        if self.result is not None and not scenario.holds(self.result):
            found.append(f"wrong numbers: {self.result}")
        if self.left:
            found.append(f"left running: {', '.join(self.left)}")
        if self.open_files > 0:
            found.append(f"{self.open_files} file(s) left open")
        return found


class _FullDisk(Slot):
    """A slot whose log cannot take a byte."""

    @property
    def console(self) -> Path:
        return Path("/dev/full")


def probe(fault: str, out_dir: Path, *, flood_bytes: int = BYTES_PER_MIB, bounds: Bounds = USUAL_BOUNDS) -> Outcome:
    """Probe the trainer with this fault once; `out_dir` is absolute and belongs to this probe alone."""
    this, clock, source = psutil.Process(), MonotonicClock(), CpuSource(RANKS)
    plan = _plan(fault, out_dir, source, flood_bytes)
    recorder = SamplingRecorder(source, clock, plan.slot.limits.sample_seconds)
    files_before = this.num_fds()
    result: ProbeResult | None = None
    try:
        result = run(
            plan, launch=partial(Process, clock=clock, bounds=bounds), recorder=recorder, clock=clock, stop=never
        )
        kept = record_of(ProbeRecord, encode(ProbeRecord(failure=result.failure)))
        got, says = (kept.failure.kind.value, kept.failure.detail) if kept and kept.failure else (OK, "")
    except TunerError as error:
        got, says = type(error).__name__, str(error)
    over_s, struck = clock.now(), out_dir / "fault_at"
    return Outcome(
        got=got,
        says=says,
        named_s=over_s - float(struck.read_text(encoding="ascii")) if struck.exists() else None,
        left=tuple(_left_running(out_dir)),
        open_files=this.num_fds() - files_before,
        result=result,
    )


def _plan(fault: str, out_dir: Path, source: CpuSource, flood_bytes: int) -> ProbePlan:
    scenario = SCENARIOS[fault]
    slot = (_FullDisk if scenario.full_disk else Slot)(
        devices=source.devices, out_dir=out_dir, port=1, limits=scenario.limits
    )
    return ProbePlan(
        config={"fault": fault},
        argv=(
            *(sys.executable, "-m", "tests.support.tests_faulty", fault),
            *("--out-dir", str(out_dir)),
            *("--iterations", str(scenario.trainer_iterations)),
            *("--iteration-seconds", str(scenario.iteration_s)),
        ),
        cwd=out_dir,
        env={"PYTHONPATH": str(ROOT), "TUNER_PROGRESS": str(slot.progress), FLOOD_BYTES: str(flood_bytes)},
        files={},
        slot=slot,
        expected=(out_dir / "model.pt",),
        session_key=fault,
    )


def _left_running(out_dir: Path) -> list[str]:
    """Return the processes that have this probe's environment, and every child of this process."""
    found = {process.pid: process for process in psutil.Process().children(recursive=True)}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("TUNER_PROGRESS", "").startswith(str(out_dir)):
                found[process.pid] = process
    return [str(process) for process in found.values()]
