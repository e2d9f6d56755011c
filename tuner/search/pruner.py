"""Which live probe is stopped early because it cannot win."""

import warnings

import optuna
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner, PatientPruner
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from tuner.search.sampler import PATIENCE
from tuner.study.spec import PrunerSpec


class GuardedPruner(BasePruner):
    """Lets an inner pruner act only with the trial's own patience, and only on probes well below the best.

    Utilisation lies on a plateau: Hyperband alone stopped half of the configs within 3 % of the best, so a probe within
    `margin_pct` points of the best complete trial always runs to its end.
    """

    def __init__(self, inner: BasePruner, *, patience: int, margin_pct: float) -> None:
        self._inner = inner
        self._patience = patience
        self._margin_pct = margin_pct

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Tell whether the trial should stop after its last reported value (the objective so far, maximised)."""
        complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if trial.last_step is None or not complete:
            return False
        best = max(one.value for one in complete if one.value is not None)
        if trial.intermediate_values[trial.last_step] >= best - self._margin_pct:
            return False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            patient = PatientPruner(self._inner, patience=trial.params.get(PATIENCE, self._patience))
        return patient.prune(study, trial)


def build_pruner(spec: PrunerSpec, iterations: int) -> BasePruner:
    """Give the pruner that the study file names; steps are iterations, `iterations` those of a full probe."""
    hyperband = HyperbandPruner(
        min_resource=spec.min_resource,
        max_resource=max(spec.max_resource or iterations, spec.min_resource),
        reduction_factor=spec.reduction_factor,
    )
    match spec.name:
        case "none":
            return NopPruner()
        case "median":
            return MedianPruner(n_warmup_steps=spec.min_resource)
        case "hyperband":
            return hyperband
        case "hyperband_patient":
            return GuardedPruner(hyperband, patience=spec.patience, margin_pct=spec.margin_pct)
