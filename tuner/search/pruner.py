"""Which live probe is stopped early because it cannot win."""

from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner
from optuna.study import Study
from optuna.trial import FrozenTrial

from tuner.search.standing import incumbent
from tuner.search.trials import PATIENCE, readings
from tuner.study.spec import PrunerSpec


class GuardedPruner(BasePruner):
    """Stops a probe once the inner pruner has advised it and it has stayed well below the best with patience.

    Utilisation lies on a plateau: Hyperband alone stopped half of the configs within 3 % of the best, so a probe is
    stopped only after `patience` iterations in a row (the trial's own `pruner_patience` where that is searched) at more
    than `margin_pct` percent below the incumbent. Optuna's PatientPruner waits for values that get worse, which on a
    plateau is noise.
    """

    def __init__(self, inner: BasePruner, *, patience: int, margin_pct: float) -> None:
        self._inner = inner
        self._patience = patience
        self._margin_pct = margin_pct
        self._advised: set[int] = set()

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Tell whether the trial should stop after its last reported value (the objective so far, maximised)."""
        if self._inner.prune(study, trial):  # asked at every step, and answers yes only at the end of a rung
            self._advised.add(trial.number)
        if trial.number not in self._advised:
            return False
        best = incumbent(readings(study.get_trials(deepcopy=False)))
        if best is None:
            return False
        patience = trial.params.get(PATIENCE, self._patience)
        recent = [trial.intermediate_values[step] for step in sorted(trial.intermediate_values)[-patience:]]
        return len(recent) == patience and max(recent) < best * (1 - self._margin_pct / 100)


class UnbracketedPruner(BasePruner):
    """Hides Hyperband from Optuna, which would show the sampler the trials of one bracket only."""

    def __init__(self, inner: BasePruner) -> None:
        self._inner = inner

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Ask the inner pruner."""
        return self._inner.prune(study, trial)


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
            return UnbracketedPruner(hyperband)
        case "hyperband_patient":
            return GuardedPruner(hyperband, patience=spec.patience, margin_pct=spec.margin_pct)
