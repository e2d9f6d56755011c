"""Sessions with a real process: what probes share, what ends a session, and that no process is left."""

import json
import stat
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

import psutil
import pytest
from tests_replays import FakeClock, scripted_plan
from tests_session_peer import PEER

from tuner.devices.cpu import CpuSource
from tuner.errors import OutputError, TrainerError
from tuner.probe.output import Bounds
from tuner.probe.probe_plan import Answer, MonotonicClock, Next, OutputLine, ProbePlan, RunningTrainer, Stop
from tuner.probe.process import Process, Sessions
from tuner.probe.result import FailureKind, ProbeResult
from tuner.probe.run import run
from tuner.probe.series import SamplingRecorder
from tuner.study.spec import ProbeSpec


class Patient(ProbeSpec):
    """Limits that a busy machine does not reach."""

    grace_seconds: ClassVar = 10.0
    iterations: int = 6
    window_seconds: float = 0.02
    max_seconds: float = 60


class Strict(Patient):
    """Limits for faults. A busy machine cannot make a fault look healthy within them."""

    grace_seconds: ClassVar = 0.4


class Deathwatch(Patient):
    """Limits that leave the guard time to notice that a rank was killed."""

    grace_seconds: ClassVar = 1.5


PATIENT, STRICT, DEATHWATCH = Patient(), Strict(), Deathwatch()


@dataclass
class Bench:
    """Probes one config after another."""

    folder: Path
    sessions: Sessions
    pids: list[int]
    """The pid of the root process that served each probe."""

    def plan(
        self,
        fault: str = "none",
        *,
        start: str = "none",
        key: str = "small",
        limits: ProbeSpec = PATIENT,
        iterations: int = 1000,
        iteration_s: float = 0.02,
    ) -> ProbePlan:
        blank = scripted_plan(self.folder / f"{len(self.pids):04d}", CpuSource(1).devices, limits)
        config = {"fault": fault}
        return replace(
            blank,
            config=config,
            argv=(sys.executable, str(PEER), start),
            cwd=self.folder,
            files={blank.slot.out_dir / "agent.yaml": fault},
            session_key=key,
            request={"config": config, "iterations": iterations, "iteration_s": iteration_s},
        )

    def tell(self, **record: str) -> None:
        """Append a record to the progress file of the first session."""
        with (self.folder / "0000/session/progress.jsonl").open("a") as progress:
            progress.write(json.dumps(record) + "\n")

    def probe(self, plan: ProbePlan, stop: Stop = lambda _: Answer(Next.GO)) -> ProbeResult:
        clock = MonotonicClock()

        def launch(plan: ProbePlan) -> RunningTrainer:
            trainer = self.sessions(plan)
            self.pids.append(trainer.pid)
            return trainer

        recorder = SamplingRecorder(CpuSource(1), clock, plan.slot.limits.sample_seconds)
        result = run(plan, launch=launch, recorder=recorder, clock=clock, stop=stop)
        return replace(result, ready_s=self.sessions.ready_s)


@pytest.fixture
def stop_s() -> float:
    """The seconds that a trainer may take to stop. A test may set another number."""
    return Sessions.STOP_S


@pytest.fixture
def bench(tmp_path: Path, stop_s: float) -> Iterator[Bench]:
    this = psutil.Process()
    files, threads = this.num_fds(), threading.active_count()
    clock = MonotonicClock()
    sessions = Sessions(clock, partial(Process, clock=clock, bounds=Bounds(term_grace_s=0.5)), stop_s=stop_s)
    yield Bench(folder=tmp_path, sessions=sessions, pids=[])
    sessions.close()
    assert this.children(recursive=True) == []
    assert (this.num_fds(), threading.active_count()) == (files, threads)
    assert not [path for path in tmp_path.rglob("*") if stat.S_ISFIFO(path.stat().st_mode)]


def test_configs_of_one_key_share_a_started_trainer(bench: Bench) -> None:
    first, second = bench.probe(bench.plan()), bench.probe(bench.plan())
    assert first.ok
    assert second.ok
    assert bench.pids[0] == bench.pids[1]
    assert first.ready_s is not None
    assert 0 < first.ready_s <= first.total_s
    assert second.ready_s == 0.0
    assert bench.sessions.open_key == "small"


def nearly(known: ProbeResult | None) -> Answer:
    return Answer(Next.LAST_ITERATION) if known and known.window_s and known.iterations == 2 else Answer(Next.GO)


@pytest.mark.parametrize(("stop", "iterations"), [(lambda _: Answer(Next.GO), PATIENT.iterations), (nearly, 4)])
@pytest.mark.parametrize("fault", ["none", "late"])
def test_no_iteration_is_begun_that_will_not_be_measured_nor_is_one_left_out(
    bench: Bench, fault: str, stop: Stop, iterations: int
) -> None:
    result = bench.probe(bench.plan(fault, iteration_s=0.3), stop=stop)
    assert (result.ok, result.iterations) == (True, iterations - PATIENT.warmup_iterations)
    told = (bench.folder / "0000/session/progress.jsonl").read_text().splitlines()
    assert [json.loads(line)["type"] for line in told] == ["ready", *["iteration"] * iterations, "done"]


def test_an_iteration_that_nobody_needs_is_left(bench: Bench) -> None:
    first = bench.probe(
        bench.plan("endless"),
        stop=lambda known: Answer(Next.ENOUGH) if known and known.iterations >= 2 else Answer(Next.GO),
    )
    assert (first.ok, first.iterations >= 2) == (True, True)  # on a busy machine, two may be read at once
    assert bench.sessions.open_key == "small"
    assert bench.probe(bench.plan()).ok
    assert bench.pids[0] == bench.pids[1]


def test_each_run_has_its_own_files_and_the_session_keeps_its_own(bench: Bench) -> None:
    bench.probe(bench.plan())
    bench.probe(bench.plan("glitch"))
    assert [(bench.folder / out / "agent.yaml").read_text() for out in ("0000", "0001")] == ["none", "glitch"]
    logs = [(bench.folder / out / "console.log").read_text() for out in ("0000", "0001", "0000/session")]
    assert logs == ["", "[tuner] session: no message: \\o/\n", ""]


def test_another_key_starts_another_session(bench: Bench) -> None:
    assert bench.probe(bench.plan()).ok
    assert bench.probe(bench.plan(key="large")).ok
    assert bench.pids[0] != bench.pids[1]
    assert bench.sessions.open_key == "large"
    assert not psutil.pid_exists(bench.pids[0])


def test_a_cold_plan_ends_the_session_and_runs_by_itself(bench: Bench) -> None:
    assert bench.probe(bench.plan()).ok
    code = "for number in range(9): print('it', number)"
    cold = replace(bench.plan(), argv=(sys.executable, "-c", code), request=None)
    running = bench.sessions(cold)
    assert isinstance(running, Process)
    assert bench.sessions.open_key is None
    assert bench.sessions.ready_s is None
    assert not psutil.pid_exists(bench.pids[0])
    running.end()


def test_a_run_that_uses_up_its_iterations_leaves_the_session_open(bench: Bench) -> None:
    first = bench.probe(bench.plan(iterations=5))
    assert first.ok
    assert first.iterations == 3
    assert bench.probe(bench.plan()).ready_s == 0.0


def test_a_pruned_run_leaves_the_session_open(bench: Bench) -> None:
    pruned = bench.probe(
        bench.plan(),
        stop=lambda known: Answer(Next.PRUNED, "cannot win") if known and known.window_s else Answer(Next.GO),
    )
    assert pruned.stopped == "cannot win"
    assert bench.probe(bench.plan()).ready_s == 0.0


@pytest.mark.parametrize("stop_s", [0.0])
def test_a_long_iteration_is_waited_for(bench: Bench) -> None:
    slow = bench.plan(iteration_s=0.4)
    assert bench.probe(slow, stop=lambda known: Answer(Next.ENOUGH) if known and known.window_s else Answer(Next.GO)).ok
    assert bench.probe(bench.plan()).ready_s == 0.0


@pytest.mark.parametrize("stop_s", [0.2])
def test_a_trainer_that_does_not_heed_a_stop_is_measured_and_ended(bench: Bench) -> None:
    assert bench.probe(bench.plan("deaf")).ok
    assert bench.sessions.open_key is None
    assert bench.probe(bench.plan()).ok
    assert bench.pids[0] != bench.pids[1]


@pytest.mark.parametrize("stop_s", [1e9])
def test_a_trainer_that_fails_at_a_stop_is_not_waited_for(bench: Bench) -> None:
    assert bench.probe(bench.plan("fails_at_stop")).ok
    assert bench.sessions.open_key is None


@pytest.mark.parametrize(
    ("fault", "limits", "kind", "says"),
    [
        ("killed", STRICT, FailureKind.CRASH, "was killed by SIGKILL"),
        ("killed_rank", DEATHWATCH, FailureKind.CRASH, "was killed by SIGKILL"),
        ("leaves", STRICT, FailureKind.CRASH, "exit code 0 in the middle of a run"),
        ("out_of_memory", STRICT, FailureKind.GPU_OOM, "2.00 GiB"),
        ("garbage", STRICT, FailureKind.CRASH, "no message: \\o/"),
        ("garbage_once", STRICT, FailureKind.CRASH, "no message: \\o/"),
        ("missing_builder", STRICT, FailureKind.MISSING_DEPENDENCY, "MimicKit has no"),
        ("gives_up", STRICT, FailureKind.CRASH, "the simulation has exploded"),
        ("silent", STRICT, FailureKind.HANG, "no new iteration"),
    ],
)
def test_a_fault_in_a_warm_run_is_named_and_the_next_config_starts_anew(
    bench: Bench, fault: str, limits: ProbeSpec, kind: FailureKind, says: str
) -> None:
    assert bench.probe(bench.plan()).ok
    failure = bench.probe(bench.plan(fault, limits=limits)).failure
    assert failure is not None
    assert (failure.kind, says in failure.detail) == (kind, True), failure
    assert bench.sessions.open_key is None
    assert bench.probe(bench.plan()).ok
    assert bench.pids[0] == bench.pids[1] != bench.pids[2]


def test_an_out_of_memory_in_a_warm_run_says_by_how_much(bench: Bench) -> None:
    failure = bench.probe(bench.plan("out_of_memory", limits=STRICT)).failure
    assert failure is not None
    assert failure.overshoot_mib == 1536.0


@pytest.mark.parametrize(
    ("start", "kind", "says"),
    [
        ("silent", FailureKind.HANG, "no output"),
        ("garbage", FailureKind.CRASH, "no message: \\o/"),
        ("missing_builder", FailureKind.MISSING_DEPENDENCY, "MimicKit has no"),
        ("killed", FailureKind.CRASH, "was killed by SIGKILL"),
        (
            "plain",
            FailureKind.CRASH,
            "an iteration before `ready`; a session's program must ask",
        ),
    ],
)
def test_a_session_that_never_is_ready_is_named_and_the_next_one_starts(
    bench: Bench, start: str, kind: FailureKind, says: str
) -> None:
    limits = STRICT.model_copy(update={"start_up_silence_seconds": 1.0}) if start == "silent" else STRICT
    result = bench.probe(bench.plan(start=start, limits=limits))
    assert result.failure is not None
    assert (result.failure.kind, says in result.failure.detail) == (kind, True), result.failure
    assert result.ready_s is None
    assert bench.probe(bench.plan()).ok


def test_one_glitch_is_forgiven_once_iterations_go_on(bench: Bench) -> None:
    assert bench.probe(bench.plan("glitch")).ok
    assert bench.probe(bench.plan()).ready_s == 0.0


def test_a_session_that_dies_between_two_runs_is_replaced(bench: Bench) -> None:
    bench.probe(bench.plan())
    psutil.Process(bench.pids[0]).kill()
    while bench.sessions.open_key:
        pass
    assert bench.probe(bench.plan()).ok
    assert bench.pids[0] != bench.pids[1]


def test_a_session_that_fails_between_two_runs_is_replaced(bench: Bench) -> None:
    bench.probe(bench.plan())
    bench.tell(type="failed", detail="CUDA out of memory")
    assert bench.probe(bench.plan()).ok
    assert bench.pids[0] != bench.pids[1]


def test_each_run_has_a_clock_of_its_own(bench: Bench) -> None:
    clock = FakeClock()
    sessions = Sessions(clock)
    first = sessions(bench.plan(iterations=1))
    clock.advance(3.0)
    while first.exit_code() is None:
        first.lines(0.05)
    assert (first.release(), sessions.ready_s) == (0, 3.0)
    bench.pids.append(first.pid)
    clock.advance(1000.0)
    second = sessions(bench.plan("out_of_memory"))
    clock.advance(2.0)
    bench.tell(type="ready")
    spoken: list[OutputLine] = []
    while not spoken:
        spoken = [line for line in second.lines(0.05) if line.stream == "console"]
    assert [line.t_s for line in spoken] == [2.0]
    second.end()
    assert sessions.ready_s == 0.0


def test_a_trainer_that_does_not_read_blocks_nobody(bench: Bench) -> None:
    limits = STRICT.model_copy(update={"start_up_silence_seconds": 1.0})
    plan = bench.plan(start="silent", limits=limits)
    flood = {"config": {"fault": "none", "padding": "x" * 1_000_000}}
    failure = bench.probe(replace(plan, request=flood)).failure
    assert failure is not None
    assert failure.kind is FailureKind.HANG
    assert bench.probe(bench.plan()).ok


def test_a_command_that_is_not_there_leaves_nothing(bench: Bench) -> None:
    with pytest.raises(TrainerError, match="no-such-program"):
        bench.sessions(replace(bench.plan(), argv=("no-such-program",)))
    assert bench.sessions.open_key is None


def test_a_log_that_cannot_be_opened_is_a_clear_error(bench: Bench) -> None:
    plan = bench.plan()
    with pytest.raises(OutputError, match=r"console\.log"):
        bench.sessions(replace(plan, files={plan.slot.console / "in_the_way": ""}))


def test_a_place_without_named_pipes_is_a_clear_error(bench: Bench) -> None:
    plan = bench.plan()
    with pytest.raises(OutputError, match="named pipe"):
        bench.sessions(replace(plan, files={plan.slot.out_dir / "requests": ""}))


def test_close_and_end_are_harmless_to_repeat(bench: Bench) -> None:
    running = bench.sessions(bench.plan())
    assert running.end() == running.end()
    bench.sessions.close()
    bench.sessions.close()
    assert bench.sessions.open_key is None
