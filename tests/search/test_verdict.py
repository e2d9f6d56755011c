from dataclasses import replace
from typing import Any

import pytest
from optuna.trial import TrialState

from tuner.probe.probe_plan import Answer, Next
from tuner.probe.quantities import FULL_PCT, Block, standard_error
from tuner.probe.result import Change, DeviceSummary, Failure, FailureKind, ProbeResult
from tuner.search.frontier import Frontier, OutOfMemory
from tuner.search.verdict import Verdict, judge, judge_unlaunched, next_answer
from tuner.study.spec import ProbeSpec, read_constraint

TABLE = {
    FailureKind.GPU_OOM: (TrialState.PRUNED, False, False),
    FailureKind.HOST_OOM: (TrialState.PRUNED, False, False),
    FailureKind.INVALID_CONFIG: (TrialState.PRUNED, False, False),
    FailureKind.OTHER_TRAINING: (TrialState.PRUNED, False, False),
    FailureKind.TOO_SLOW: (TrialState.PRUNED, False, False),
    FailureKind.NCCL: (TrialState.FAIL, True, False),
    FailureKind.PORT_IN_USE: (TrialState.FAIL, True, True),
    FailureKind.GPU_BUSY: (TrialState.FAIL, True, True),
    FailureKind.GPU_LOST: (TrialState.FAIL, True, True),
    FailureKind.HANG: (TrialState.FAIL, True, False),
    FailureKind.NO_READING: (TrialState.FAIL, True, False),
    FailureKind.MISSING_DEPENDENCY: (TrialState.FAIL, True, True),
    FailureKind.MISSING_ASSET: (TrialState.FAIL, True, True),
    FailureKind.INVALID_COMMAND: (TrialState.FAIL, True, True),
    FailureKind.NO_PROGRESS: (TrialState.FAIL, True, True),
    FailureKind.IDLE_DEVICE: (TrialState.FAIL, True, True),
    FailureKind.CRASH: (TrialState.FAIL, False, False),
    FailureKind.INTERRUPTED: (TrialState.FAIL, True, True),
}
"""Failure kind → state, whether the config is probed again after the first failure, and after the second."""


def result(**changes: Any) -> ProbeResult:
    utils = {"cuda:0": 61.0, "cuda:1": 58.5}
    devices = tuple(DeviceSummary(device=name, source="nvml", util_mean_pct=util) for name, util in utils.items())
    config = {"num_envs": 64, "agent_variant": "hiutil"}
    known = {"samples_per_s": 900.0, "window_s": 10.0, "devices": devices}
    return ProbeResult(config=config, plan_digest="", started_at="", total_s=20.0, **(known | changes))


def failed(kind: FailureKind, overshoot_mib: float | None = None) -> ProbeResult:
    return result(failure=Failure(kind=kind, rule="test", detail="because", overshoot_mib=overshoot_mib))


def test_the_table_holds_every_kind() -> None:
    assert set(TABLE) == set(FailureKind)


def test_each_failure_has_its_verdict() -> None:
    for kind in FailureKind:
        state, first, second = TABLE[kind]
        for attempt, retry in ((1, first), (2, second)):
            verdict = judge(failed(kind), "min_avg_util", attempt=attempt)
            assert (verdict.state, verdict.status, verdict.value, verdict.retry) == (state, kind.value, None, retry)
            assert (verdict.constraint is not None) == (kind is FailureKind.GPU_OOM)


def test_a_config_that_was_too_slow_is_probed_again_after_other_programs_or_a_start_that_may_have_compiled() -> None:
    blank = failed(FailureKind.TOO_SLOW)
    beside = replace(blank, devices=tuple(replace(device, others_mean_pct=86.0) for device in blank.devices))
    for slow, is_first in ((beside, False), (blank, True)):
        told = [judge(slow, "min_avg_util", attempt=attempt, is_first=is_first) for attempt in (1, 2)]
        assert [(one.state, one.retry) for one in told] == [(TrialState.FAIL, True), (TrialState.PRUNED, False)]
    assert judge(replace(blank, start_up_s=40.0), "min_avg_util", is_first=True).state == TrialState.PRUNED


@pytest.mark.parametrize(("overshoot_mib", "constraint"), [(3072.0, 3.0), (None, 1.0)])
def test_running_out_of_memory_is_a_constraint_of_its_size(overshoot_mib: float | None, constraint: float) -> None:
    assert judge(failed(FailureKind.GPU_OOM, overshoot_mib), "min_avg_util").constraint == constraint


@pytest.mark.parametrize(("objective", "value"), [("min_avg_util", 58.5), ("samples_per_s", 900.0)])
def test_a_measured_probe_is_complete_with_its_objective(objective: str, value: float) -> None:
    assert judge(result(), objective) == Verdict(state=TrialState.COMPLETE, status="ok", value=value)


def test_several_objectives_are_reported_in_their_order() -> None:
    verdict = judge(result(), "samples_per_s", "min_avg_util")
    assert verdict == Verdict(state=TrialState.COMPLETE, status="ok", value=900.0, further=(58.5,))
    assert verdict.values == [900.0, 58.5]


def test_one_objective_without_a_reading_is_none_at_all() -> None:
    verdict = judge(result(), "min_avg_util", "min_avg_sm")
    unread = Verdict(state=TrialState.FAIL, status="no_reading", unread=("min_avg_sm",))
    assert (verdict, verdict.values) == (unread, None)


def test_a_stopped_probe_is_pruned() -> None:
    assert judge(result(stopped="median"), "min_avg_util") == Verdict(state=TrialState.PRUNED, status="pruned")


def test_a_failure_counts_more_than_being_stopped() -> None:
    failure = Failure(kind=FailureKind.CRASH, rule="test", detail="")
    assert judge(result(stopped="median", failure=failure), "min_avg_util").status == "crash"


def test_a_probe_without_a_reading_fails() -> None:
    unread = Verdict(state=TrialState.FAIL, status="no_reading", unread=("min_avg_util",))
    assert judge(result(devices=()), "min_avg_util") == unread


def test_what_lies_beyond_the_frontier_is_judged_without_a_launch() -> None:
    frontier = Frontier([OutOfMemory({"num_envs": 32, "agent_variant": "hiutil"}, 1.5)])
    known = judge_unlaunched({"num_envs": 64, "agent_variant": "hiutil"}, frontier)
    assert known is not None
    failure, verdict = known
    assert (failure.kind, failure.rule) == (FailureKind.GPU_OOM, "frontier")
    assert "num_envs=32 agent_variant=hiutil" in failure.detail
    assert verdict == Verdict(state=TrialState.PRUNED, status="gpu_oom", constraint=3.0)


@pytest.mark.parametrize("config", [{"num_envs": 16, "agent_variant": "hiutil"}, {"num_envs": 64}])
def test_what_may_fit_is_launched(config: dict[str, Any]) -> None:
    assert judge_unlaunched(config, Frontier([OutOfMemory({"num_envs": 32, "agent_variant": "hiutil"}, 1.5)])) is None


def with_memory(peak_mib: float, **changes: Any) -> ProbeResult:
    blank = result()
    devices = tuple(replace(one, mem_peak_mib=peak_mib, mem_total_mib=1000.0) for one in blank.devices)
    return result(devices=devices, **changes)


def test_a_config_without_headroom_is_ok_but_not_eligible() -> None:
    for peak_mib, eligible in [(949.0, True), (950.0, True), (951.0, False), (1000.0, False)]:
        verdict = judge(with_memory(peak_mib), "min_avg_util", headroom_pct=5.0)
        assert (verdict.state, verdict.status, verdict.value) == (TrialState.COMPLETE, "ok", 58.5)
        assert (verdict.ineligible is None) == eligible
        assert eligible or "device memory" in str(verdict.ineligible)


@pytest.mark.parametrize(("retries", "eligible"), [(None, True), (0, True), (3, False)])
def test_an_allocator_that_had_to_retry_is_a_soft_out_of_memory(retries: int | None, eligible: bool) -> None:
    verdict = judge(with_memory(100.0, alloc_retries=retries), "min_avg_util", headroom_pct=5.0)
    assert verdict.status == "ok"
    assert (verdict.ineligible is None) == eligible


def test_a_constraint_that_is_missed_makes_a_config_ineligible_and_has_its_size() -> None:
    asked = [read_constraint("samples_per_s", ">= 1200"), read_constraint("min_avg_util", ">= 50")]
    verdict = judge(result(), "min_avg_util", constraints=asked)
    assert (verdict.state, verdict.status, verdict.value) == (TrialState.COMPLETE, "ok", 58.5)
    assert verdict.missed == pytest.approx({"samples_per_s": 0.25, "min_avg_util": -0.17})
    assert verdict.ineligible == "samples_per_s is 900, >= 1200 is required"


@pytest.mark.parametrize(("default", "eligible"), [(1000.0, True), (1200.0, False), (None, False)])
def test_default_is_the_reading_of_the_default_variant(default: float | None, eligible: bool) -> None:
    asked = [read_constraint("samples_per_s", ">= 0.8 * default")]
    verdict = judge(result(), "min_avg_util", constraints=asked, default={"samples_per_s": default})
    assert (verdict.ineligible is None) == eligible == (verdict.missed["samples_per_s"] <= 0)


def test_every_reason_is_given() -> None:
    asked = [read_constraint("mem_peak_mib", "<= 800"), read_constraint("power_mean_w", "<= 700")]
    verdict = judge(with_memory(980.0), "min_avg_util", headroom_pct=5.0, constraints=asked)
    memory, peak, power = str(verdict.ineligible).split("; ")
    assert memory.startswith("only 2.0 % of device memory stayed free")
    assert peak == "mem_peak_mib is 980, <= 800 is required"
    assert power == "power_mean_w was not measured, <= 700 is required"


def with_error(
    error_pct: float | None, *, edge_pct: float = 0.0, iterations: int = 6, window_s: float = 20.0
) -> ProbeResult:
    devices = tuple(replace(one, util_se_pct=error_pct, util_edge_pct=edge_pct) for one in result().devices)
    return result(devices=devices, iterations=iterations, window_s=window_s)


def test_a_probe_is_settled_once_more_would_change_nothing() -> None:
    for so_far, incumbent, expected in [
        (with_error(0.9), None, Answer(Next.ENOUGH)),
        (with_error(1.05), None, Answer(Next.LAST_ITERATION)),
        (with_error(1.2), None, Answer(Next.GO)),
        (with_error(3.2), None, Answer(Next.GO)),
        (with_error(3.5), None, Answer(Next.MORE)),
        (with_error(None), None, Answer(Next.MORE)),
        (with_error(5.0), 80.0, Answer(Next.ENOUGH)),
        (with_error(5.0), 78.0, Answer(Next.LAST_ITERATION)),
        (with_error(5.0), 65.0, Answer(Next.MORE)),
        (with_error(5.4, edge_pct=5.3), None, Answer(Next.ENOUGH)),
        (with_error(5.4, edge_pct=5.3, iterations=3), None, Answer(Next.LAST_ITERATION)),
        (with_error(5.4, edge_pct=3.0), None, Answer(Next.MORE)),
        (with_error(1.2, edge_pct=0.9), None, Answer(Next.GO)),
        (with_error(1.01, edge_pct=0.9), None, Answer(Next.LAST_ITERATION)),
        (with_error(0.1, iterations=3), None, Answer(Next.LAST_ITERATION)),
        (with_error(0.1, iterations=2), None, Answer(Next.GO)),
        (with_error(0.1, window_s=4.9), None, Answer(Next.LAST_ITERATION)),
        (with_error(0.1, window_s=4.9, iterations=29), None, Answer(Next.GO)),
        (with_error(0.1, window_s=3.9), None, Answer(Next.GO)),
        (result(devices=()), None, Answer(Next.GO)),
    ]:
        limits = ProbeSpec(min_iterations=5, window_seconds=5)
        assert next_answer(so_far, ["min_avg_util"], limits, incumbent) == expected


def test_a_long_window_may_leave_a_speed_rough() -> None:
    for objective, window_s, start_up_s, expected in [
        ("samples_per_s", 29.0, 8.0, Answer(Next.MORE)),
        ("samples_per_s", 31.0, 8.0, Answer(Next.GO)),
        ("samples_per_s", 31.0, 60.0, Answer(Next.MORE)),
        ("min_avg_util", 31.0, 8.0, Answer(Next.MORE)),
    ]:
        so_far = replace(with_error(5.0, window_s=window_s), samples_per_s_se=45.0, start_up_s=start_up_s)
        assert next_answer(so_far, [objective], ProbeSpec(min_iterations=5, window_seconds=5)) == expected


@pytest.mark.parametrize(
    ("changed_after_s", "start_up_s", "expected"), [(100.0, 8.0, Next.GO), (100.0, 50.0, Next.MORE)]
)
def test_a_speed_that_other_programs_keep_from_settling_counts_after_two_minutes(
    changed_after_s: float, start_up_s: float, expected: Next
) -> None:
    so_far = replace(
        with_error(5.0, window_s=21.0),
        samples_per_s_se=900.0,
        start_up_s=start_up_s,
        change=Change(iteration=90, seconds=changed_after_s, times=5.0),
    )
    limits = ProbeSpec(min_iterations=5, window_seconds=5)
    assert next_answer(so_far, ["samples_per_s"], limits) == Answer(Next.MORE)  # nothing disturbs it
    disturbed = tuple(replace(device, others_mean_pct=40.0) for device in so_far.devices)
    assert next_answer(replace(so_far, devices=disturbed), ["samples_per_s"], limits) == Answer(expected)


def test_the_first_iteration_that_may_be_the_last_is_known_before_it_ends() -> None:
    """Otherwise each session would run one unused iteration, a quarter of a short probe."""
    limits = ProbeSpec(min_iterations=4)
    before = limits.min_iterations - limits.warmup_iterations - 1
    told = standard_error([Block(10.0, 97.0), Block(10.0, 97.4)][:before], largest=FULL_PCT)
    assert next_answer(with_error(told, iterations=before), ["min_avg_util"], limits).next is Next.LAST_ITERATION
