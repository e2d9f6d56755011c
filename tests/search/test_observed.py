"""Failed probes close the configs that need at least as much memory or time."""

from typing import Any

import pytest
from optuna.trial import FrozenTrial, TrialState, create_trial

from tuner.records.schema import PROBE, RETRY
from tuner.records.trial import ProbeRecord, TrialRecord
from tuner.search.trials import Observed, distribution
from tuner.study.space import Config, Parameter, Space

SPACE = Space(
    (
        Parameter(name="num_envs", values=(32, 64, 128)),
        Parameter(name="batch_size", values=(1, 2, 4)),
        Parameter(name="update_epochs", values=(20, 30, 40)),
        Parameter(name="num_workers", values=(0, 4)),
    )
)
MIDDLE: Config = {"num_envs": 64, "batch_size": 2, "update_epochs": 30, "num_workers": 0}


def failure(kind: str, *, ran: bool = False) -> FrozenTrial:
    """Return a failed probe of the config in the middle; `ran`: its start was over."""
    return create_trial(
        state=TrialState.PRUNED,
        params=MIDDLE,
        distributions={one.name: distribution(one) for one in SPACE.parameters},
        user_attrs={PROBE: {"status": kind, "start_up_s": 10.0 if ran else None, "total_s": 12.0}},
    )


def closed(trial: FrozenTrial) -> list[Config]:
    frontier = Observed([trial]).frontier
    return [config for config in SPACE.configs() if frontier.exceeded_failure(config)]


def test_a_start_that_was_too_slow_closes_its_rung_and_those_above() -> None:
    assert closed(failure("too_slow")) == [config for config in SPACE.configs() if int(config["num_envs"]) >= 64]


def test_iterations_that_were_too_slow_leave_fewer_updates_open() -> None:
    assert closed(failure("too_slow", ran=True)) == [
        config
        for config in SPACE.configs()
        if int(config["num_envs"]) >= 64
        and int(config["update_epochs"]) >= 30
        and (config["batch_size"], config["num_workers"]) == (2, 0)
    ]


def test_what_was_too_slow_and_is_tried_again_closes_nothing() -> None:
    again = failure("too_slow")
    again.set_user_attr(RETRY, True)
    assert (closed(again), Observed([again]).failures) == ([], 0)


def test_a_crash_closes_nothing_but_itself() -> None:
    assert closed(failure("crash", ran=True)) == []


def test_a_failure_for_any_cause_is_counted_and_an_interruption_is_not() -> None:
    kinds = ("crash", "gpu_oom", "host_oom", "too_slow")
    assert Observed(list(map(failure, (*kinds, "interrupted")))).failures == len(kinds)


@pytest.mark.parametrize(
    ("record", "ran"),
    [
        ({"total_s": 420.0}, False),
        ({"total_s": 420.0, "start_up_s": 60.0}, True),
        ({"total_s": 920.0, "start_up_s": 500.0}, True),
        ({"total_s": 420.0, "warm": True, "ready_s": None}, False),
        ({"total_s": 420.0, "warm": True, "ready_s": 0.0}, True),
    ],
    ids=["no iteration", "iterations", "long start", "session not ready", "session open"],
)
def test_what_took_the_time_is_read_off_the_record(record: dict[str, Any], ran: bool) -> None:
    assert TrialRecord(probe=ProbeRecord(**record)).failed_after_start is ran
