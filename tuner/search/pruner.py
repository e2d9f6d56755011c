"""Pruners stop a running probe early if its config cannot become the best."""

from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner
from optuna.study import Study
from optuna.trial import FrozenTrial

from tuner.search.standing import incumbent
from tuner.search.trials import all_kept, since_mended
from tuner.study.space import PATIENCE
from tuner.study.spec import PrunerSpec

MARGIN_PCT = 15.0
"""`hyperband_patient` stops only a probe that stays below the best by more than this percentage of the best."""


class GuardedPruner(BasePruner):
    """Stops a probe that the inner pruner wants to stop, once the probe has been well below the best for long enough.

    Many configs have nearly the same utilisation: Hyperband alone stopped half of the configs within 3 % of the best.
    So a probe must first stay more than `margin_pct` percent below the incumbent for `patience` iterations in a row. If
    the study searches `pruner_patience`, the trial's own value counts. Optuna's PatientPruner does not help: it waits
    for values that get worse, which here is only noise.
    """

    def __init__(self, inner: BasePruner, *, patience: int, margin_pct: float = MARGIN_PCT) -> None:
        self._inner = inner
        self._patience = patience
        self._margin_pct = margin_pct
        self._advised: set[int] = set()

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Return whether the trial should stop. Its reported values are the objective so far, and larger is better."""
        if self._inner.prune(study, trial):  # Hyperband says yes only at the ends of its rungs, so ask at every step
            self._advised.add(trial.number)
        if trial.number not in self._advised:
            return False
        best = incumbent(all_kept(since_mended(study)))
        if best is None:
            return False
        patience = trial.params.get(PATIENCE, self._patience)
        recent = [trial.intermediate_values[step] for step in sorted(trial.intermediate_values)[-patience:]]
        return len(recent) == patience and max(recent) < best * (1 - self._margin_pct / 100)


class UnbracketedPruner(BasePruner):
    """Hides Hyperband from Optuna. Optuna shows a sampler beside Hyperband only the trials of one bracket."""

    def __init__(self, inner: BasePruner) -> None:
        self._inner = inner

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Ask the inner pruner."""
        return self._inner.prune(study, trial)


def build_pruner(spec: PrunerSpec, iterations: int) -> BasePruner:
    """Return the pruner that the study file names. A step is an iteration, `iterations` the length of a full probe."""
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
            return GuardedPruner(hyperband, patience=spec.patience)
