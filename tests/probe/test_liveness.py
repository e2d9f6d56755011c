"""Live and dead trainers, scripted in a fake clock's time; one rank or both ranks report."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests_devices import RecordedProbe, ReplayedSource
from tests_replays import FakeClock, ReplayedRecorder, ScriptedTrainer, never, scripted_plan

from tuner.probe.probe_plan import Device, LinePatterns, OutputLine
from tuner.probe.progress_reader import ProgressReader
from tuner.probe.result import FailureKind, ProbeResult
from tuner.probe.run import run
from tuner.probe.watch import ProbeEnd, Watch
from tuner.study.spec import ProbeSpec

DEVICES = tuple(Device(name=f"cuda:{index}", model="x") for index in range(2))
PATTERN = LinePatterns(patterns=(r"it (?P<iteration>\S+)",))
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
TRACEBACK = "Traceback (most recent call last):"


def said(t_s: float, text: str) -> OutputLine:
    return OutputLine(t_s=t_s, text=text)


def marked(times_s: Sequence[float]) -> list[OutputLine]:
    """Return lines in which rank 0 reports for all ranks."""
    return [said(t_s, f"it {number}") for number, t_s in enumerate(times_s)]


def reported(rank: int, times_s: Sequence[float], first: int = 0) -> list[OutputLine]:
    """Return lines in which a rank reports only for itself."""
    return [
        OutputLine(
            t_s=t_s, text=json.dumps({"iteration": first + number, "rank": rank, "samples": number}), stream="progress"
        )
        for number, t_s in enumerate(times_s)
    ]


def watched(*lines: str) -> Watch:
    """Return a watch of lines that came a second apart."""
    watch = Watch(ProbeSpec(), ProgressReader(PATTERN, 0.0), 1)
    watch.feed([said(float(second), line) for second, line in enumerate(lines, start=1)])
    return watch


def every(step_s: float, count: int, start_s: float = 30.0) -> list[float]:
    return [start_s + step_s * number for number in range(count)]


def probe(lines: Sequence[OutputLine], *, exit_at_s: float | None = None, **limits: float) -> ProbeResult:
    clock = FakeClock()
    recording = RecordedProbe(devices=DEVICES, samples=(), marks_s=(), total_s=0.0, exit_code=0)
    return run(
        scripted_plan(Path("out"), DEVICES, ProbeSpec.model_validate(limits), PATTERN),
        launch=ScriptedTrainer(clock, lines, exit_at_s=exit_at_s),
        recorder=ReplayedRecorder(ReplayedSource(recording), (), clock),
        clock=clock,
        stop=never,
    )


def kind(result: ProbeResult) -> FailureKind | None:
    return result.failure.kind if result.failure else None


def test_the_iteration_in_hand_when_a_rank_died_refutes_nothing() -> None:
    result = probe([*marked([30.0, 33.0, 36.0, 39.0]), said(38.0, OOM)])
    assert kind(result) is FailureKind.GPU_OOM
    assert result.total_s == pytest.approx(44.0, abs=0.2)


def test_a_whole_iteration_after_it_refutes_an_out_of_memory_that_was_caught() -> None:
    assert probe([*marked(every(3.0, 8)), said(34.0, OOM)]).ok


def test_a_rank_out_of_memory_overturns_the_iterations_before() -> None:
    last_s = every(3.0, 8)[-1]
    assert kind(probe([*marked(every(3.0, 8)), said(last_s, OOM)])) is FailureKind.GPU_OOM


def test_a_dead_rank_is_named_while_its_peers_keep_talking() -> None:
    chatter = [said(40.0 + second, "still here") for second in range(100)]
    result = probe([*marked(every(3.0, 3)), said(39.0, "Process Process-1:"), said(39.0, "KeyError: 'x'"), *chatter])
    assert result.failure is not None
    assert (kind(result), result.failure.detail) == (FailureKind.CRASH, "KeyError: 'x'")
    assert result.total_s == pytest.approx(49.0, abs=0.2)


def test_a_traceback_names_the_hang_that_follows_it() -> None:
    chatter = [said(40.0 + second, "still here") for second in range(200)]
    result = probe([*marked(every(3.0, 3)), said(39.0, TRACEBACK), said(39.0, "KeyError: 'x'"), *chatter])
    assert (kind(result), result.total_s) == (FailureKind.CRASH, pytest.approx(96.0, abs=0.2))


def test_lines_with_a_rank_before_them_are_no_death() -> None:
    assert probe([*marked(every(20.0, 8)), *[said(t_s, "[rank0]: step done") for t_s in every(20.0, 8, 31.0)]]).ok


def test_a_missing_package_that_was_caught_does_not_end_a_slow_start() -> None:
    caught = [said(1.0, TRACEBACK), said(1.0, "ModuleNotFoundError: No module named 'wandb'")]
    building = [said(t_s, f"Building {t_s}") for t_s in every(14.0, 19, 2.0)]
    assert probe([*caught, *building, *marked(every(3.0, 8, 260.0))]).ok


def test_every_rank_must_advance() -> None:
    result = probe([*reported(0, every(3.0, 100)), *reported(1, every(3.0, 4))])
    assert result.failure is not None
    assert (kind(result), result.failure.rank) == (FailureKind.HANG, 1)
    assert result.total_s == pytest.approx(39.0 + 60.0, abs=0.2)


def test_a_rank_that_never_reports_is_a_hang_and_not_too_slow() -> None:
    result = probe(reported(0, every(3.0, 300)), max_seconds=100)
    assert result.failure is not None
    assert (kind(result), result.failure.rank) == (FailureKind.HANG, 1)


def test_what_one_rank_prints_does_not_count_beside_what_each_reports() -> None:
    lines = [*reported(0, every(3.0, 100)), *reported(1, every(3.0, 4)), *marked(every(3.0, 100))]
    assert kind(probe(lines)) is FailureKind.HANG


@pytest.mark.parametrize(("ranks", "silent"), [((0,), 1), ((0, 7), 1), ((1, 2), 0), ((7,), 0)])
def test_a_rank_that_never_reports_is_named_with_how_ranks_are_numbered(ranks: tuple[int, ...], silent: int) -> None:
    lines = sorted((line for rank in ranks for line in reported(rank, every(3.0, 30))), key=lambda line: line.t_s)
    failure = probe(lines, max_seconds=100).failure
    assert failure is not None
    assert (failure.kind, failure.rank) == (FailureKind.HANG, silent)
    assert failure.detail.startswith(f"rank {silent} has reported no iteration; ranks are numbered from 0")


def test_one_rank_more_than_devices_does_no_harm_where_the_others_report() -> None:
    lines = [line for rank in (0, 1, 2) for line in reported(rank, every(3.0, 30))]
    assert probe(sorted(lines, key=lambda line: line.t_s), max_seconds=100).ok


def test_exit_0_with_a_rank_behind_is_no_success() -> None:
    lines = [*reported(0, every(3.0, 7)), *reported(1, every(3.0, 4))]
    assert kind(probe(lines, exit_at_s=50.0)) is FailureKind.HANG
    assert probe([*lines, *reported(1, every(3.0, 3, 42.0), first=4)], exit_at_s=50.0).ok


def test_a_silent_iteration_ten_times_as_slow_is_no_hang() -> None:
    for usual_s in [0.1, 1.0, 5.0, 20.0]:
        times_s = [*every(usual_s, 4), *every(usual_s, 5, 30.0 + 13 * usual_s)]
        assert probe(marked(times_s), window_seconds=0.1).ok


@pytest.mark.parametrize(
    ("told", "stream"),
    [
        ("evaluating ...", "console"),
        ("saving checkpoint to last.pt", "console"),
        ('{"type": "training", "paused": true}', "progress"),
    ],
)
def test_a_silent_evaluation_or_checkpoint_is_no_hang_until_silence_lasts_too_long(told: str, stream: Any) -> None:
    before, after = every(0.1, 40), every(0.1, 40, 48.0)
    pause = OutputLine(t_s=before[-1] + 0.01, text=told, stream=stream)
    assert probe([*marked(before), pause, *marked([*before, *after])[40:]]).ok
    assert kind(probe(marked([*before, *after]))) is FailureKind.HANG
    endless = probe([*marked(before), pause])
    assert (kind(endless), endless.total_s) == (FailureKind.HANG, pytest.approx(before[-1] + 120.0, abs=0.2))


@pytest.mark.parametrize("apart_s", [0.0, 0.001])
def test_marks_that_come_in_bursts_are_no_hang(apart_s: float) -> None:
    assert probe(marked([begin_s + apart_s * place for begin_s in (30.0, 55.0, 80.0) for place in range(3)])).ok


def test_a_hang_that_the_time_limit_ends_is_no_result() -> None:
    chatter = [said(t_s, "still here") for t_s in every(5.0, 100)]
    assert kind(probe([*marked(every(20.0, 4)), *chatter], max_seconds=400)) is FailureKind.HANG


def test_a_killed_rank_is_named_by_the_signal_or_by_the_memory_it_lacked() -> None:
    watch = watched(
        "[tuner] process 7 was killed by SIGKILL", "[rank0]: torch.distributed.DistBackendError: NCCL error"
    )
    for oom_kills, expected in ((0, FailureKind.CRASH), (1, FailureKind.HOST_OOM)):
        failure = watch.failure(ProbeEnd.FATAL, exit_code=None, measured=True, oom_kills=oom_kills)
        assert failure is not None
        assert failure.kind is expected


def test_a_kill_elsewhere_on_the_host_is_not_taken_for_ours() -> None:
    failure = watched(OOM).failure(ProbeEnd.EXITED, exit_code=1, oom_kills=3)
    assert failure is not None
    assert failure.kind is FailureKind.GPU_OOM


def test_an_abort_after_a_collective_s_time_out_is_nccl() -> None:
    timeout = "[rank0]:[E1121] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)"
    watch = watched(timeout, "[tuner] process 7 was killed by SIGABRT")
    failure = watch.failure(ProbeEnd.FATAL, exit_code=None)
    assert failure is not None
    assert failure.kind is FailureKind.NCCL


def unread() -> OutputLine:
    return OutputLine(t_s=1.0, text=json.dumps({"type": "unread", "detail": "reports are a folder"}), stream="progress")


def test_reports_that_cannot_be_read_are_named() -> None:
    chatter = [said(t_s, "busy") for t_s in every(10.0, 60, 2.0)]
    result = probe([unread(), *chatter], max_start_seconds=100)
    assert result.failure is not None
    assert (kind(result), "reports are a folder" in result.failure.detail) == (FailureKind.TOO_SLOW, True)
    assert kind(probe([unread(), said(5.0, "done")], exit_at_s=9.0)) is FailureKind.NO_PROGRESS
    assert probe([unread(), *marked(every(3.0, 8))]).ok
