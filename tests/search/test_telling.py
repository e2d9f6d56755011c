import optuna
import pytest
from optuna.trial import TrialState

from tuner.records.schema import INELIGIBLE, MEMORY
from tuner.search.verdict import Verdict


@pytest.mark.parametrize(
    ("verdict", "state", "values", "constraints"),
    [
        (Verdict(state=TrialState.COMPLETE, status="ok", value=60.0), TrialState.COMPLETE, [60.0], {}),
        (
            Verdict(
                state=TrialState.COMPLETE,
                status="ok",
                value=60.0,
                ineligible="slow",
                missed={"samples_per_s": 0.25},
            ),
            TrialState.COMPLETE,
            [60.0],
            {INELIGIBLE: 1.0, "samples_per_s": 0.25},
        ),
        (Verdict(state=TrialState.PRUNED, status="gpu_oom", constraint=2.5), TrialState.PRUNED, None, {MEMORY: 2.5}),
        (Verdict(state=TrialState.FAIL, status="hang"), TrialState.FAIL, None, {}),
    ],
)
def test_a_trial_ends_as_its_verdict_says(
    verdict: Verdict, state: TrialState, values: list[float] | None, constraints: dict[str, float]
) -> None:
    study = optuna.create_study(direction="maximize")
    tell(study, study.ask(), verdict)
    (told,) = study.trials
    assert (told.state, told.values, told.constraints) == (state, values, constraints)
