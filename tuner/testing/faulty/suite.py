"""The expected result of each fault, and a probe of the fault with real processes."""

import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tuner.devices.cpu import CpuSource
from tuner.errors import TunerError
from tuner.probe.clock import MonotonicClock
from tuner.probe.console import USUAL_BOUNDS, Bounds
from tuner.probe.plan import ProbePlan, Slot
from tuner.probe.process import Launcher
from tuner.probe.recorder import SamplingRecorder
from tuner.probe.run import run
from tuner.probe.stop import never
from tuner.study.spec import ProbeSpec
from tuner.testing.faulty.strikes import FLOOD_BYTES
from tuner.units import BYTES_PER_MIB

OK = "ok"
RANKS = 2
STRICT = ProbeSpec(
    iterations=16,
    window_seconds=0.1,
    max_seconds=30,
    start_up_silence_seconds=5,
    silence_seconds=1.5,
    grace_seconds=0.4,
)
"""The limits of a probe, scaled to iterations of 20 ms; those of a real trainer take seconds."""
DEATHWATCH = STRICT.model_copy(update={"silence_seconds": 6, "grace_seconds": 1.5})
"""Limits that leave the guard time to notice that a rank was killed."""
PATIENT = STRICT.model_copy(update={"silence_seconds": 20, "grace_seconds": 10})


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """The expected result of probing a fault, and the limits of the probe."""

    expected: str
    """`ok`, the kind of the failure, or the name of the error that is raised."""
    says: str = ""
    """Text that the failure's detail contains."""
    limits: ProbeSpec = STRICT
    iteration_s: float = 0.02
    trainer_iterations: int = 1000
    """The number of iterations after which the trainer ends by itself."""
    full_disk: bool = False
    """Whether the log lies on a disk without room."""


_HEALTHY = Scenario(expected=OK, limits=PATIENT)

SCENARIOS: dict[str, Scenario] = {
    "none": _HEALTHY,
    "oom_at_build": Scenario(expected="gpu_oom", says="355123200"),
    "oom_at_training": Scenario(expected="gpu_oom", says="2.00 GiB"),
    "oom_after_ten_iterations": Scenario(expected="gpu_oom", says="2.00 GiB"),
    "host_oom": Scenario(expected="host_oom"),
    "skipped_collective": Scenario(expected="hang"),
    "collective_timeout": Scenario(expected="nccl", says="ALLREDUCE", limits=DEATHWATCH),
    "busy_loop": Scenario(expected="hang"),
    "busy_loop_that_prints": Scenario(expected="hang"),
    "rank_runs_on_alone": Scenario(expected="hang", says="rank 0 fell behind"),
    "slow_rank": _HEALTHY,
    "killed_rank": Scenario(expected="crash", says="killed by SIGKILL", limits=DEATHWATCH),
    "crashed_rank": Scenario(expected="crash", says="actor_epochs"),
    "rank_ignores_term": _HEALTHY,
    "grandchild_in_own_session": _HEALTHY,
    "port_in_use": Scenario(expected="port_in_use"),
    "missing_file": Scenario(expected="missing_asset", says="walk.pkl"),
    "missing_package": Scenario(expected="missing_dependency", says="no_such_simulator"),
    "exit_without_files": Scenario(expected="crash", says="without model.pt", limits=PATIENT, trainer_iterations=10),
    "nan_progress": Scenario(expected="hang"),
    "negative_progress": Scenario(expected="hang"),
    "progress_backwards": Scenario(expected="hang"),
    "broken_counts": _HEALTHY,
    "stepped_clock": _HEALTHY,
    "flood_without_newline": _HEALTHY,
    "not_utf8": _HEALTHY,
    "deleted_logs": _HEALTHY,
    "full_disk": Scenario(expected="OutputError", says="No space left", full_disk=True),
    "slow_start": Scenario(expected=OK, limits=PATIENT.model_copy(update={"start_up_silence_seconds": 4})),
    "slow_iteration": Scenario(
        expected=OK,
        limits=STRICT.model_copy(update={"iterations": 10, "silence_seconds": 0.8, "grace_seconds": 0.1}),
        iteration_s=0.1,
    ),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """The result of probing a fault."""

    got: str
    says: str
    named_s: float | None
    """The seconds from the fault to the result, when every process has ended; None where the fault did not strike."""
    left: tuple[str, ...]
    """The processes of the probe that still exist."""
    open_files: int
    """The number of file descriptors that this process opened and did not close."""

    def deviations(self, scenario: Scenario) -> list[str]:
        """Return the differences from the expected result."""
        found = []
        if self.got != scenario.expected or scenario.says not in self.says:
            found.append(f"{self.got}: {self.says}")
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
    try:
        failure = run(plan, launch=Launcher(clock, bounds), recorder=recorder, clock=clock, stop=never).failure
        got, says = (failure.kind.value, failure.detail) if failure else (OK, "")
    except TunerError as error:
        got, says = type(error).__name__, str(error)
    over_s, struck = clock.now(), out_dir / "fault_at"
    return Outcome(
        got=got,
        says=says,
        named_s=over_s - float(struck.read_text(encoding="ascii")) if struck.exists() else None,
        left=tuple(_left_running(out_dir)),
        open_files=this.num_fds() - files_before,
    )


def _plan(fault: str, out_dir: Path, source: CpuSource, flood_bytes: int) -> ProbePlan:
    scenario = SCENARIOS[fault]
    slot = (_FullDisk if scenario.full_disk else Slot)(
        devices=source.devices, out_dir=out_dir, port=1, limits=scenario.limits
    )
    return ProbePlan(
        config={"fault": fault},
        argv=(
            *(sys.executable, "-m", "tuner.testing.faulty", fault),
            *("--out-dir", str(out_dir)),
            *("--iterations", str(scenario.trainer_iterations)),
            *("--iteration-seconds", str(scenario.iteration_s)),
        ),
        cwd=out_dir,
        env={"TUNER_PROGRESS": str(slot.progress), FLOOD_BYTES: str(flood_bytes)},
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
