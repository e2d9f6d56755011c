from typing import Any

import pytest

from tuner.probe.result import DeviceSummary, Failure, FailureKind, ProbeResult
from tuner.search.frontier import Frontier, OutOfMemory
from tuner.search.verdict import State, Verdict, foregone, judge

TABLE = {
    FailureKind.GPU_OOM: (State.PRUNED, False, False),
    FailureKind.HOST_OOM: (State.PRUNED, False, False),
    FailureKind.INVALID_CONFIG: (State.PRUNED, False, False),
    FailureKind.TOO_SLOW: (State.PRUNED, False, False),
    FailureKind.NCCL: (State.FAIL, True, False),
    FailureKind.PORT_IN_USE: (State.FAIL, True, False),
    FailureKind.GPU_BUSY: (State.FAIL, True, False),
    FailureKind.GPU_LOST: (State.FAIL, True, False),
    FailureKind.HANG: (State.FAIL, True, False),
    FailureKind.MISSING_DEPENDENCY: (State.FAIL, False, False),
    FailureKind.MISSING_ASSET: (State.FAIL, False, False),
    FailureKind.CRASH: (State.FAIL, False, False),
    FailureKind.INTERRUPTED: (State.FAIL, True, True),
}
"""Failure kind → state, whether it is tried again after the first attempt, and after the second."""


def result(**changes: Any) -> ProbeResult:
    utils = {"cuda:0": 61.0, "cuda:1": 58.5}
    devices = tuple(
        DeviceSummary(device=name, source="nvml", window_s=10.0, util_mean_pct=util) for name, util in utils.items()
    )
    config = {"num_envs": 64, "agent_variant": "hiutil"}
    known = {"samples_per_s": 900.0, "window_s": 10.0, "devices": devices}
    return ProbeResult(config=config, plan_digest="", started_at="", total_s=20.0, **(known | changes))


def failed(kind: FailureKind, overshoot_mib: float | None = None) -> ProbeResult:
    return result(failure=Failure(kind=kind, rule="test", detail="because", overshoot_mib=overshoot_mib))


def test_the_table_holds_every_kind() -> None:
    assert set(TABLE) == set(FailureKind)


@pytest.mark.parametrize("kind", FailureKind)
def test_each_failure_has_its_verdict(kind: FailureKind) -> None:
    state, first, second = TABLE[kind]
    for attempt, retry in ((1, first), (2, second)):
        verdict = judge(failed(kind), "min_avg_util", attempt=attempt)
        assert (verdict.state, verdict.status, verdict.value, verdict.retry) == (state, kind.value, None, retry)
        assert (verdict.constraint is not None) == (kind is FailureKind.GPU_OOM)


@pytest.mark.parametrize(("overshoot_mib", "constraint"), [(3072.0, 3.0), (None, 1.0)])
def test_running_out_of_memory_is_a_constraint_of_its_size(overshoot_mib: float | None, constraint: float) -> None:
    assert judge(failed(FailureKind.GPU_OOM, overshoot_mib), "min_avg_util").constraint == constraint


@pytest.mark.parametrize(("objective", "value"), [("min_avg_util", 58.5), ("samples_per_s", 900.0)])
def test_a_measured_probe_is_complete_with_its_objective(objective: str, value: float) -> None:
    assert judge(result(), objective) == Verdict(state=State.COMPLETE, status="ok", value=value)


def test_a_stopped_probe_is_pruned() -> None:
    assert judge(result(stopped="median"), "min_avg_util") == Verdict(state=State.PRUNED, status="pruned")


def test_a_failure_counts_more_than_being_stopped() -> None:
    failure = Failure(kind=FailureKind.CRASH, rule="test", detail="")
    assert judge(result(stopped="median", failure=failure), "min_avg_util").status == "crash"


def test_a_probe_without_a_reading_fails() -> None:
    assert judge(result(devices=()), "min_avg_util") == Verdict(state=State.FAIL, status="no_reading")


def test_what_lies_beyond_the_frontier_is_judged_without_a_launch() -> None:
    frontier = Frontier([OutOfMemory({"num_envs": 32, "agent_variant": "hiutil"}, 1.5)])
    known = foregone({"num_envs": 64, "agent_variant": "hiutil"}, frontier)
    assert known is not None
    failure, verdict = known
    assert (failure.kind, failure.rule) == (FailureKind.GPU_OOM, "frontier")
    assert "num_envs=32 agent_variant=hiutil" in failure.detail
    assert verdict == Verdict(state=State.PRUNED, status="gpu_oom", constraint=3.0)


@pytest.mark.parametrize("config", [{"num_envs": 16, "agent_variant": "hiutil"}, {"num_envs": 64}])
def test_what_may_fit_is_launched(config: dict[str, Any]) -> None:
    assert foregone(config, Frontier([OutOfMemory({"num_envs": 32, "agent_variant": "hiutil"}, 1.5)])) is None
