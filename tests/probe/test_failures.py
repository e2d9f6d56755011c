"""The trainer's own report of its failure, beside the failure that its output shows."""

import json
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.probe.evidence import Evidence
from tuner.probe.probe_plan import LinePatterns, OutputLine
from tuner.probe.progress_reader import ProgressReader
from tuner.probe.result import BREACH, Failure, FailureKind
from tuner.probe.watch import ProbeEnd, Watch
from tuner.study.spec import ProbeSpec

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
NCCL = "torch.distributed.DistBackendError: NCCL error"
GRACE_S = ProbeSpec().grace_seconds
PATTERNS = LinePatterns(patterns=(r"^iter (?P<iteration>\d+)",))


def named(
    *told: Mapping[str, object],
    lines: Sequence[str] = (),
    end: ProbeEnd = ProbeEnd.FATAL,
    exit_code: int = 0,
    measured: bool = False,
    t_s: float = 1.0,
) -> Failure:
    watch = Watch(ProbeSpec(), ProgressReader(PATTERNS, 0.0), 1)
    reports = [json.dumps({"type": "failed", **record}) for record in told]
    watch.feed([OutputLine(t_s=t_s, text=line) for line in lines])
    watch.feed([OutputLine(t_s=t_s + 1.0, text=text, stream="progress") for text in reports])
    failure = watch.failure(end, exit_code=exit_code, measured=measured)
    assert failure is not None
    return failure


def test_a_reported_kind_wins_over_the_printed_lines() -> None:
    failure = named({"detail": "MimicKit has no x", "kind": "missing_dependency", "rank": 1}, lines=[OOM, NCCL])
    assert (failure.kind, failure.rule, failure.rank) == (FailureKind.MISSING_DEPENDENCY, "told", 1)
    assert failure.detail == "MimicKit has no x"


def test_memory_wins_among_reported_kinds() -> None:
    failure = named(
        {"detail": "a peer is gone", "kind": "nccl"}, {"detail": "it is full", "kind": "gpu_oom", "rank": 1}
    )
    assert (failure.kind, failure.detail, failure.rank) == (FailureKind.GPU_OOM, "it is full", 1)


def test_printed_lines_add_details_to_a_reported_kind() -> None:
    failure = named({"detail": "it is full", "kind": "gpu_oom", "rank": 1}, lines=[OOM])
    assert (failure.kind, failure.overshoot_mib, failure.rank) == (FailureKind.GPU_OOM, 2048.0, 1)


def test_without_a_kind_the_rules_judge_the_report() -> None:
    for kind in [None, "interrupted", "no such kind", 7, ["gpu_oom"]]:
        traceback = f"Traceback (most recent call last):\n  File x\n{OOM}\n"
        failure = named({"detail": NCCL, "kind": kind, "rank": 0}, {"detail": traceback, "kind": kind, "rank": 1})
        assert (failure.kind, failure.rule, failure.rank) == (FailureKind.GPU_OOM, "device memory", 1)
        assert failure.overshoot_mib == 2048.0


@pytest.mark.parametrize("end", [ProbeEnd.FATAL, ProbeEnd.EXITED, ProbeEnd.HANG, ProbeEnd.OUT_OF_TIME])
@pytest.mark.parametrize("measured", [False, True])
def test_what_no_rule_knows_is_a_crash_in_the_trainer_s_own_words(end: ProbeEnd, measured: bool) -> None:
    told = {"detail": "Traceback:\nValueError: it exploded\n"}
    failure = named(told, lines=["KeyError: 'before'"], end=end, measured=measured)
    assert (failure.kind, failure.detail) == (FailureKind.CRASH, "ValueError: it exploded")


@given(
    st.dictionaries(
        st.sampled_from(["detail", "kind", "rank"]), st.none() | st.integers() | st.text() | st.lists(st.text())
    )
)
def test_any_report_is_a_failure(record: dict[str, object]) -> None:
    assert named(record).detail


def over_s(*lines: tuple[float, str], progress: bool) -> tuple[ProbeEnd, float]:
    """Return when a watch of these lines or records ends the probe, and why."""
    watch = Watch(ProbeSpec(), ProgressReader(LinePatterns(), 0.0), 1)
    waiting = [OutputLine(t_s=t_s, text=text, stream="progress" if progress else "console") for t_s, text in lines]
    for tick in range(10_000):
        now_s = tick / 10
        due = [line for line in waiting if line.t_s <= now_s]
        waiting = waiting[len(due) :]
        watch.feed(due)
        if end := watch.reason_to_end(now_s):
            return end, now_s
    raise AssertionError("it never ended")


def test_a_reported_failure_ends_the_probe_after_the_grace_time() -> None:
    failed = json.dumps({"type": "failed", "detail": "x"})
    assert over_s((10.0, failed), progress=True) == (ProbeEnd.FATAL, pytest.approx(10.0 + GRACE_S))


def test_a_breach_ends_the_probe_when_nothing_follows() -> None:
    assert over_s((10.0, f"{BREACH}x"), progress=False) == (ProbeEnd.FATAL, pytest.approx(10.0 + 3 * GRACE_S))


def test_breaches_that_follow_each_other_end_the_probe_while_they_go_on() -> None:
    breaches = [(10.0 + second, f"{BREACH}x") for second in range(1000)]
    assert over_s(*breaches, progress=False) == (ProbeEnd.FATAL, pytest.approx(10.0 + 2 * GRACE_S))


@pytest.mark.parametrize(
    ("end", "over", "enough"),
    [
        (ProbeEnd.EXITED, "the trainer ended with exit code 0,", FailureKind.NO_READING),
        (ProbeEnd.OUT_OF_TIME, "the time limit of 900 s (probe.max_start_seconds) came", FailureKind.TOO_SLOW),
    ],
)
def test_a_probe_whose_progress_is_not_understood_shows_what_it_said(
    end: ProbeEnd, over: str, enough: FailureKind
) -> None:
    assert named(lines=["step 1", "step 2"], end=end).detail == (
        f"{over} before an iteration was seen; the last line: step 2"
    )
    short = named(lines=["iter 1", "iter 2"], end=end)
    assert short.kind is enough
    assert "2" in short.detail
    assert ("max_seconds" in short.detail) == (end is ProbeEnd.OUT_OF_TIME)
    assert short.detail.endswith("the last line: iter 2")


@pytest.mark.parametrize(
    ("end", "over", "slow"),
    [
        (ProbeEnd.EXITED, "the trainer ended with exit code 0; it", ""),
        (ProbeEnd.OUT_OF_TIME, "the trainer", "; its start may be slow"),
        (ProbeEnd.HANG, "the trainer", "; its start may be slow"),
    ],
)
def test_a_trainer_that_says_nothing_is_pointed_to_report(end: ProbeEnd, over: str, slow: str) -> None:
    failure = named(end=end)
    assert (failure.kind, failure.rule) == (FailureKind.NO_PROGRESS, "silent")
    assert failure.detail.partition(", as")[0] == f"{over} printed nothing and nothing called report(){slow}"
    assert "`report()`" in (failure.kind.remedy or "")


@pytest.mark.parametrize("lines", [(), ("epoch 1 of 9", "epoch 2 of 9", "epoch 3 of 9")])
def test_a_counted_trainer_that_ends_without_a_step_has_crashed_whatever_it_prints(lines: Sequence[str]) -> None:
    watch = Watch(ProbeSpec(), ProgressReader(LinePatterns(), 0.0), 1)
    watch.feed([OutputLine(t_s=1.0, text=line) for line in lines])
    failure = watch.failure(ProbeEnd.EXITED, exit_code=0, is_counted=True)
    assert failure is not None
    assert (failure.kind, failure.rule) == (FailureKind.CRASH, "incomplete")


def test_a_trainer_that_dies_without_a_word_has_crashed() -> None:
    failure = named(end=ProbeEnd.EXITED, exit_code=3)
    assert (failure.kind, failure.detail) == (FailureKind.CRASH, "exit code 3: no output")


def test_a_hang_shows_what_was_said_last() -> None:
    details = [named(lines=[line], end=ProbeEnd.HANG).detail for line in ("loading", "iter 2")]
    assert details == [
        "no new iteration for 300 s (see probe.start_up_silence_seconds); the last line: loading",
        "no new iteration for 120 s (see probe.silence_seconds); the last line: iter 2",
    ]


LONG = "9" * 5000


@pytest.mark.parametrize(
    "line",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate ..1.2.3 GiB.",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 of which ...... MiB is free.",
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {LONG} GiB. GPU {LONG} has a total capacity",
        f"Failed to allocate {LONG} bytes on device 'cuda:{LONG}'",
        f"[rank{LONG}]: torch.OutOfMemoryError: CUDA out of memory.",
    ],
)
def test_sizes_and_ranks_that_cannot_be_read_are_unknown(line: str) -> None:
    failure = named(lines=[line])
    assert (failure.kind, failure.rank) in {(FailureKind.GPU_OOM, None), (FailureKind.GPU_OOM, 0)}
    assert failure.overshoot_mib in {None, 2048.0}


def test_a_reported_rank_that_is_none_is_unknown() -> None:
    for rank in [-1, 10**400, 1.5, 1.0, True, "0", [], {}, float("nan")]:
        assert named({"detail": "it broke", "kind": "crash", "rank": rank}).rank is None


PARTS = st.sampled_from(
    [
        *(
            "Traceback (most recent call last):",
            "[rank",
            "]: ",
            "Process SpawnProcess-",
            ":",
            "-- Process ",
            " terminated",
        ),
        *("Tried to allocate ", " GiB", " of which ", " MiB is free", "Failed to allocate ", " bytes", "cuda:"),
        *("RuntimeError: ", ".", "..", "-", "1e999", "²", "٣", LONG, "9", "\x00", "\udcf6", " with"),
    ]
)


@given(st.lists(st.lists(PARTS, max_size=8).map("".join), max_size=8))
def test_no_line_crashes_the_reading_of_failures(lines: list[str]) -> None:
    evidence = Evidence()
    for line in lines:
        evidence.feed(line, 1.0)
    evidence.failure()
    evidence.crash_line()
