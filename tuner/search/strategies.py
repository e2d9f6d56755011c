"""The strategies: which choosers choose, in which order, and which pruner stops a probe."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product

from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from tuner.probe import full
from tuner.search.calibration import Calibration
from tuner.search.choosing import Choice, Chooser, Done, History, Price, Strategy, Why, first_answer, retry
from tuner.search.gain.chooser import Gain
from tuner.search.gain.prospects import Goal
from tuner.search.samplers import Drawn, Seeds
from tuner.search.siblings import Sibling
from tuner.search.standing import eligible, incumbent
from tuner.search.trials import all_kept, kept, since_mended
from tuner.study import LADDER, PATIENCE, VARIANT, Config, PrunerSpec, SearchSpec, Space, StudySpec


class SiblingsFirst:
    """Chooses each sibling's best config once.

    A trial of such a config names the sibling (`ORIGIN`). A sibling that finds a better config later gets no second
    turn. Configs outside the space, configs probed already and configs sure to run out of memory are left out.
    """

    def __init__(self, space: Space, siblings: Sequence[Sibling]) -> None:
        """`siblings` have their turns in the given order."""
        firsts = {one.case: space.nearest(one.best) for one in siblings}
        self._firsts = {case: config for case, config in firsts.items() if config in space}

    def choose(self, history: History, price: Price) -> Choice | None:
        """Choose the best config of the next sibling that has not had its turn."""
        had = {kept(one).origin for one in history.trials}
        turns = (
            Choice(config=config, origin=case)
            for case, config in self._firsts.items()
            if case not in had and history.is_new(config)
        )
        return next(turns, None)


class DefaultFirst:
    """Chooses as other choosers do, but first the default config of each rung.

    A constraint may compare a config with the default config of its rung. If the default is probed first, the
    constraint is judged once, as soon as the config has been measured. Two workers that begin a rung at the same time
    both measure its default, so that neither waits for the other.
    """

    def __init__(self, space: Space, choosers: Sequence[Chooser]) -> None:
        self._space = space
        self._choosers = choosers

    def choose(self, history: History, price: Price) -> Choice | Done | None:
        """Choose the first answer of the other choosers, or the default of its rung if that is not known yet.

        A retry stays as it is. A default that cannot run is not waited for.
        """
        answer = first_answer(self._choosers, history, price)
        if not isinstance(answer, Choice) or answer.why not in {Why.SEARCH, Why.CALIBRATE}:
            return answer
        default = self._space.default_at(self._space.rung(answer.config))
        if default == answer.config or default not in self._space or history.is_over(default):
            return answer
        return Choice(config=default)


class Ordered:
    """Chooses the configs of a list in their order, except for those that cannot fit into memory.

    Workers side by side keep to rungs of their own, so that each rung's session is started once.
    """

    def __init__(self, configs: Sequence[Config], ladder: str | None) -> None:
        """`ladder`: the parameter whose values are the rungs."""
        self._configs, self._ladder = configs, ladder or LADDER

    def choose(self, history: History, price: Price) -> Choice | None:
        """Choose the first new config of the open session, or of a rung where no worker is, or of all."""
        new = list(filter(history.is_new, self._configs))
        if not new:
            return None
        elsewhere = {one.params.get(self._ladder) for one in history.trials if one.state == TrialState.RUNNING}
        return Choice(config=min(new, key=lambda config: (price(config) > 0.0, config.get(self._ladder) in elsewhere)))


def downwards(space: Space) -> list[Config]:
    """Return each variant at each rung, from the largest rung down; other parameters take their first value."""
    rungs = sorted(space.rungs, key=float, reverse=True) or [None]
    return [space.first_at(rung, variant) for rung, variant in product(rungs, space.values(VARIANT) or (None,))]


def until_one_runs(history: History, price: Price) -> Done | None:
    """End a recovery once a config has succeeded."""
    return Done(reason="a config has run") if eligible(all_kept(history.trials)) else None


Siblings = Callable[[], Sequence[Sibling]]
"""Looks up the cases that are like a case. Called only where they matter."""


def searching(space: Space, spec: StudySpec, resumed_at: int, siblings: Siblings) -> Strategy:
    """Return the strategy that the study file names. `resumed_at`: the number of trials so far."""
    known = siblings()
    if spec.sampler == "gain":
        goal = Goal(training_hours=spec.search.training_hours, ceiling=full(spec.objectives[0]))
        return by_gain(space, Gain(space, spec.probe, goal=goal, siblings=known), known)
    return by_drawing(space, spec.search, known, resumed_at=resumed_at)


def by_gain(space: Space, gain: Gain, siblings: Sequence[Sibling] = ()) -> Strategy:
    """Choose the siblings' best configs, then what gains most. A search may end before each sibling had its turn."""
    return Strategy(
        choosers=(retry, gain.ended, SiblingsFirst(space, siblings).choose, gain.choose), confirmer=gain.confirm
    )


def by_drawing(space: Space, search: SearchSpec, siblings: Sequence[Sibling] = (), *, resumed_at: int = 0) -> Strategy:
    """Choose the siblings' best configs, then the seeds, then what TPE or a random sampler draws."""
    seeds, drawn = Seeds(space, search.seeds_per_variant), Drawn(space, search, resumed_at=resumed_at)
    return Strategy(choosers=(retry, SiblingsFirst(space, siblings).choose, seeds.choose, drawn.choose))


def in_order(configs: Sequence[Config], ladder: str | None = LADDER) -> Strategy:
    """Probe a list of configs, as a recording does. `ladder`: the parameter whose values are the rungs."""
    return Strategy(choosers=(retry, Ordered(configs, ladder).choose))


def recovery(space: Space) -> Strategy:
    """Go down the ladder until one config runs, for a case that has had no success."""
    return Strategy(choosers=(until_one_runs, retry, Ordered(downwards(space), space.ladder).choose))


def calibrating(steps: Calibration) -> Strategy:
    """Make small probes, from which the rungs of an `auto` ladder or an `auto` batch size follow."""
    return Strategy(choosers=(steps.ended, retry, steps.choose))


def defaults_first(strategy: Strategy, space: Space) -> Strategy:
    """Probe the default config of each rung before any other config of the rung."""
    return replace(strategy, choosers=(DefaultFirst(space, strategy.choosers).choose,))


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
