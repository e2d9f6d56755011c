"""How often a config has failed, according to a study's trials."""

import pytest
from optuna.trial import FrozenTrial, TrialState, create_trial

from tuner.records.schema import PROBE
from tuner.search.trials import distribution, failures_in_a_row
from tuner.study.space import PATIENCE, Parameter

KINDS = {
    one.name: distribution(one)
    for one in (Parameter(name="num_envs", values=(32, 64)), Parameter(name=PATIENCE, values=(1, 2)))
}


def told(failure: str | None, *, num_envs: int = 64, patience: int = 1) -> FrozenTrial:
    """Return a trial that failed; without a `failure`, a trial that ran."""
    return create_trial(
        state=TrialState.FAIL if failure else TrialState.COMPLETE,
        value=None if failure else 50.0,
        params={"num_envs": num_envs, PATIENCE: patience},
        distributions=KINDS,
        user_attrs={PROBE: {"status": failure}} if failure else {},
    )


@pytest.mark.parametrize(
    ("trials", "failures"),
    [
        ([], 0),
        ([told("nccl"), told("hang")], 2),
        ([told("nccl"), told("interrupted"), told("port_in_use")], 1),
        ([told("nccl"), told(None)], 0),
        ([told("nccl"), told(None), told("nccl")], 1),
        ([told("nccl", patience=2)], 1),
        ([told("nccl"), told(None, num_envs=32), told("nccl", num_envs=32)], 1),
    ],
    ids=["none", "two", "excused", "ran since", "after it ran", "other patience", "other config"],
)
def test_failures_count_in_a_row_and_by_config(trials: list[FrozenTrial], failures: int) -> None:
    assert failures_in_a_row(trials, {"num_envs": 64, PATIENCE: 1}) == failures
