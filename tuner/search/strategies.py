"""The strategies: which choosers choose, in which order, and which pruner stops a probe.

A chooser returns the config of the next probe, or nothing; a strategy asks its choosers in order. The ladder is the
parameter that decides how much memory a config needs, and its values are the rungs. A session is a started trainer
that serves several probes, usually those of one rung. A sibling is a similar case that was searched before.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product

from optuna.pruners import BasePruner, HyperbandPruner, NopPruner
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from tuner.probe import largest_value
from tuner.search import choosing
from tuner.search.choosing import Aim, Choice, Chooser, Done, History, StartsNeeded, Strategy
from tuner.search.gain.chooser import Gain, by_gain
from tuner.search.gain.expected_gain import Goal
from tuner.search.observed import Sibling
from tuner.search.samplers import OptunaChooser, seeds_first, siblings_first
from tuner.search.standing import eligible
from tuner.search.trials import incumbent
from tuner.study import LADDER, PATIENCE, VARIANT, Config, PrunerSpec, SearchSpec, Space, StudySpec


def ordered(configs: Sequence[Config], ladder: str | None) -> Chooser:
    """Return the chooser of the configs of a list in their order, except for those that cannot fit into memory.

    Where several workers share a search, a worker prefers its own open session, and then rungs on which no other worker
    probes. So each rung's session is mostly started once.

    `ladder`: the parameter whose values are the rungs.
    """
    name = ladder or LADDER

    def choose(history: History, starts_needed: StartsNeeded) -> Choice | None:
        """Choose a new config: of the open session, else of a rung without another worker, else the first; or None."""
        busy_rungs = {trial.params.get(name) for trial in history.trials if trial.state == TrialState.RUNNING}

        def order(config: Config) -> tuple[bool, bool]:
            """Return a key that sorts the open session first, then rungs that are not busy: False comes before True."""
            return starts_needed(config) > 0.0, config.get(name) in busy_rungs

        config = min(filter(history.is_new, configs), key=order, default=None)
        return None if config is None else Choice(config=config)

    return choose


def downwards(space: Space) -> list[Config]:
    """Return the configs with which a failing case is recovered: each variant of the agent at each rung, largest first.

    Other parameters take their first value.
    """
    rungs = sorted(space.rungs, key=float, reverse=True) or [None]
    return [space.first_at(rung, variant) for rung, variant in product(rungs, space.values(VARIANT) or (None,))]


def until_one_runs(history: History, _starts_needed: StartsNeeded) -> Done | None:
    """End a recovery once a config has succeeded; None before."""
    return Done(reason="a config has run") if eligible(history.records) else None


Siblings = Callable[[], Sequence[Sibling]]
"""Looks up the cases that are similar to a case. Only a strategy that learns from them calls it."""


def searching(space: Space, spec: StudySpec, resumed_at: int, siblings: Siblings) -> Strategy:
    """Return the strategy that the study file names: by expected gain, or what TPE or a random sampler draws.

    `resumed_at`: the number of trials so far, with which a resumed search draws new random numbers.
    """
    cases = siblings()
    if spec.sampler == "gain":
        goal = Goal(training_hours=spec.search.training_hours, ceiling=largest_value(spec.objectives[0]))
        return by_gain(space, Gain(space, spec.probe, goal=goal, siblings=cases), cases)
    is_speed = len(spec.objectives) == 1 and largest_value(spec.objectives[0]) == math.inf
    return by_drawing(space, spec.search, cases, resumed_at=resumed_at, baseline=space.own if is_speed else None)


def by_drawing(
    space: Space,
    search: SearchSpec,
    siblings: Sequence[Sibling] = (),
    *,
    resumed_at: int = 0,
    baseline: Config | None = None,
) -> Strategy:
    """Return the strategy of the siblings' best configs, then `seeds_first`, then what TPE or a random sampler draws.

    `resumed_at`: the number of trials so far. `baseline`: the user's own config, whose gain the end makes sure;
    None where there is none, or no speed to compare.
    """

    def confirm(history: History, _starts_needed: StartsNeeded) -> Config | None:
        """Return a config that only sessions have measured, or else one that makes the gain sure; or None."""
        return history.unconfirmed() or (history.to_compare(baseline) if baseline else None)

    drawn = OptunaChooser(space, search, resumed_at=resumed_at)
    seeds = seeds_first(space, search.seeds_per_variant)
    return Strategy(choosers=(choosing.retry, siblings_first(space, siblings), seeds, drawn.choose), confirm=confirm)


def in_order(configs: Sequence[Config], ladder: str | None = LADDER) -> Strategy:
    """Return the strategy that probes a list of configs, as a recording does. `ladder`: its values are the rungs."""
    return Strategy(choosers=(choosing.retry, ordered(configs, ladder)))


def recovery(space: Space) -> Strategy:
    """Return the strategy for a case in which no config has run: it goes down the ladder until one does."""
    return Strategy(choosers=(until_one_runs, choosing.retry, ordered(downwards(space), space.ladder)))


def defaults_first(strategy: Strategy, space: Space) -> Strategy:
    """Return a strategy that chooses as `strategy` does, but the default of each rung before the rung's other configs.

    A constraint may compare a config with the default config of its rung. If the default is probed first, the
    constraint is judged once, as soon as the config has been measured. Two workers that begin a rung at the same time
    both measure its default, so that neither waits for the other. A default that cannot run is not waited for. Only a
    config that was never probed waits for its default: a retry or a confirmation stays as it is.
    """

    def choose(history: History, starts_needed: StartsNeeded) -> Choice | Done | None:
        """Return the answer of `strategy`, or instead the default of its rung if that must be probed first; or None."""
        answer = choosing.first_answer(strategy.choosers, history, starts_needed)
        if not isinstance(answer, Choice) or answer.aim not in {Aim.SEARCH, Aim.CALIBRATE}:
            return answer  # it is no config, or a config that was probed before
        default = space.default_at(space.rung(answer.config))
        comes_first = default != answer.config and default in space and not history.is_over(default)
        return Choice(config=default) if comes_first else answer

    return replace(strategy, choosers=(choose,))


class GuardedPruner(BasePruner):
    """Stops a probe that the inner pruner wants to stop, once the probe has been well below the best for long enough.

    Many configs have nearly the same utilisation: Hyperband alone stopped half of the configs within 3 % of the best.
    So a probe must first stay more than `margin_pct` percent below the incumbent, the best mean so far, for `patience`
    iterations in a row. If the study searches `pruner_patience`, the trial's own value counts. Optuna's PatientPruner
    does not help: it waits for values that get worse, and here these are only noise.
    """

    def __init__(self, inner: BasePruner, *, patience: int, margin_pct: float = 15.0) -> None:
        self._inner = inner
        self._patience = patience
        self._margin_pct = margin_pct
        self._advised: set[int] = set()
        """The numbers of the trials that the inner pruner wants to stop."""

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Return whether the trial should stop: see the class. Larger reported values are better.

        Trials from before a person has repaired the study's set-up do not count.
        """
        if self._inner.prune(study, trial):  # Hyperband says yes only at a few steps, so ask at each and remember it
            self._advised.add(trial.number)
        if trial.number not in self._advised:
            return False
        best = incumbent(study)
        if best is None:  # no config has been measured
            return False
        patience = trial.params.get(PATIENCE, self._patience)
        newest_steps = sorted(trial.intermediate_values)[-patience:]
        newest = [trial.intermediate_values[step] for step in newest_steps]
        return len(newest) == patience and max(newest) < best * (1 - self._margin_pct / 100)


def build_pruner(spec: PrunerSpec, iterations: int) -> BasePruner:
    """Return the pruner that the study file names. `iterations`: those of a full probe; an iteration is a step."""
    if spec.name == "none":
        return NopPruner()
    hyperband = HyperbandPruner(
        min_resource=spec.min_resource,
        max_resource=max(spec.max_resource or iterations, spec.min_resource),
        reduction_factor=spec.reduction_factor,
    )
    return GuardedPruner(hyperband, patience=spec.patience)
