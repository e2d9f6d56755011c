"""Reports a verdict to Optuna."""

from optuna.study import Study
from optuna.trial import Trial, TrialState

from tuner.kept.names import INELIGIBLE, MEMORY
from tuner.search.verdict import State, Verdict

_STATES = {State.COMPLETE: TrialState.COMPLETE, State.PRUNED: TrialState.PRUNED, State.FAIL: TrialState.FAIL}


def tell(study: Study, trial: Trial, verdict: Verdict) -> None:
    """End a trial as its verdict says. Missing memory and missed bounds become Optuna constraints."""
    if verdict.constraint is not None:
        trial.set_constraint(MEMORY, verdict.constraint)
    if verdict.ineligible:
        trial.set_constraint(INELIGIBLE, 1.0)
    for metric, share in verdict.missed.items():
        trial.set_constraint(metric, share)
    study.tell(trial, verdict.values, state=_STATES[verdict.state])
