"""The strategies: which choosers choose, in which order, and which pruner stops a probe; calibration is one of them.

A chooser returns the config of the next probe, or nothing; a strategy asks its choosers in order. The ladder is the
parameter that decides how much memory a config needs, and its values are the rungs. A session is a started trainer
that serves several probes, usually those of one rung. A sibling is a similar case that was searched before. Where a
study file says `auto` in place of the rungs, a few cheap probes show how memory grows, and so which rungs are worth a
probe. Until then, the doublings stand for the rungs: numbers of which each is twice the number before.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import product, takewhile

from optuna.pruners import BasePruner, HyperbandPruner, NopPruner
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from tuner.probe import largest_value
from tuner.records.case_record import StudyAttributes
from tuner.records.trial import MEMORY_SHARE, START_S
from tuner.search.choosing import ALL_PROBED, Aim, Choice, Chooser, Done, History, Starts, Strategy, first_answer, retry
from tuner.search.gain.chooser import Gain, by_gain
from tuner.search.gain.expected_gain import Goal
from tuner.search.resource_model import fitted_after_siblings
from tuner.search.samplers import OptunaChooser, seeds_first, siblings_first
from tuner.search.standing import eligible
from tuner.search.trials import Observed, Sibling, incumbent
from tuner.study import LADDER, PATIENCE, VARIANT, Config, ProbeSpec, PrunerSpec, SearchSpec, Space, StudySpec


def ordered(configs: Sequence[Config], ladder: str | None) -> Chooser:
    """Return the chooser of the configs of a list in their order, except for those that cannot fit into memory.

    Where several workers share a search, a worker prefers its own open session, and then rungs on which no other worker
    probes. So each rung's session is mostly started once.

    `ladder`: the parameter whose values are the rungs.
    """
    name = ladder or LADDER

    def choose(history: History, starts_needed: Starts) -> Choice | None:
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


def until_one_runs(history: History, _starts_needed: Starts) -> Done | None:
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

    def confirm(history: History, _starts_needed: Starts) -> Config | None:
        """Return a config that only sessions have measured, or else one that makes the gain sure; or None."""
        return history.unconfirmed() or (history.to_compare(baseline) if baseline else None)

    drawn = OptunaChooser(space, search, resumed_at=resumed_at)
    seeds = seeds_first(space, search.seeds_per_variant)
    return Strategy(choosers=(retry, siblings_first(space, siblings), seeds, drawn.choose), confirm=confirm)


def in_order(configs: Sequence[Config], ladder: str | None = LADDER) -> Strategy:
    """Return the strategy that probes a list of configs, as a recording does. `ladder`: its values are the rungs."""
    return Strategy(choosers=(retry, ordered(configs, ladder)))


def recovery(space: Space) -> Strategy:
    """Return the strategy for a case in which no config has run: it goes down the ladder until one does."""
    return Strategy(choosers=(until_one_runs, retry, ordered(downwards(space), space.ladder)))


def defaults_first(strategy: Strategy, space: Space) -> Strategy:
    """Return a strategy that chooses as `strategy` does, but the default of each rung before the rung's other configs.

    A constraint may compare a config with the default config of its rung. If the default is probed first, the
    constraint is judged once, as soon as the config has been measured. Two workers that begin a rung at the same time
    both measure its default, so that neither waits for the other. A default that cannot run is not waited for. Only a
    config that was never probed waits for its default: a retry or a confirmation stays as it is.
    """

    def choose(history: History, starts_needed: Starts) -> Choice | Done | None:
        """Return the answer of `strategy`, or instead the default of its rung if that must be probed first; or None."""
        answer = first_answer(strategy.choosers, history, starts_needed)
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


Expects = Callable[[int], bool]
"""Returns whether a rung is expected to run, for example. Where it is, all smaller rungs are, too."""


def calibration_rungs(doublings: Sequence[int]) -> list[int]:
    """Return the rungs to probe, in order, until two have run: two show how memory grows.

    First comes a rung near the bottom, then a rung far above it. If that is too large, those below it follow,
    downwards. Of the doublings 16, 32, 64, 128, 256 and 512, these are 32, 256, 128, 64 and 16.
    """
    far = min(4, len(doublings) - 1)  # both places are low, so that probes are cheap, but far apart
    close = max(min(1, far - 1), 0)
    downwards = reversed(doublings[: far + 1])
    return list(dict.fromkeys((doublings[close], *downwards)))  # each once


def make_rungs(
    doublings: Sequence[int], *, safe: Expects, possible: Expects, tried: Iterable[int] = ()
) -> tuple[int, ...]:
    """Return the rungs of an `auto` ladder, in rising order.

    1. All doublings that are possible, without a gap. The smallest doubling is always a rung.
    2. Up to two finer rungs where safety ends between two doublings: the largest safe number, and the number half-way
       from the last safe doubling to it. Each must be at least 1.25 times that doubling: on two H200s, 34,816 and
       36,864 environments differed by less than their errors, and a probe of either took seven minutes.
    3. All rungs that were tried.

    Args:
        doublings: The numbers that may be rungs, each twice the one before.
        safe: Says of a number whether it is expected to leave enough memory free.
        possible: Says of a number whether it may run at all.
        tried: The rungs of all trials so far.
    """
    possible_doublings = [doublings[0], *takewhile(possible, doublings)]
    return tuple(sorted({*possible_doublings, *_finer_rungs(doublings, safe), *tried}))


def _finer_rungs(doublings: Sequence[int], safe: Expects) -> list[int]:
    """Return up to two rungs between the last safe doubling and the next: see `make_rungs`.

    None where all doublings are safe, or none is: safety then ends nowhere between two of them.
    """
    safe_doublings = list(takewhile(safe, doublings))
    if not 0 < len(safe_doublings) < len(doublings):
        return []
    last, unsafe = safe_doublings[-1], doublings[len(safe_doublings)]
    step = max(last // 8, 1)  # an eighth of a doubling: rungs are then round numbers
    *_, largest = takewhile(safe, range(last, unsafe, step))
    half_way = (last + largest) // 2
    return [rung for rung in (half_way, largest) if rung >= 1.25 * last]  # see `make_rungs` for 1.25


def ladder_calibration(space: Space) -> Strategy:
    """Return the strategy that probes one small rung after another, until the rungs of an `auto` ladder can be made."""
    configs, ladder = calibration_configs(space), str(space.ladder)

    def next_config(history: History) -> Config | None:
        """Return a config that was not probed yet, else a config that another worker probes now; None after two rungs.

        A worker rather repeats the other's probe than waits for its end.
        """
        if len({trial.config[ladder] for trial in history.complete}) >= 2:  # two points give a straight line
            return None
        unfinished = [config for config in configs if not history.is_over(config)]
        return min(unfinished, key=lambda config: not history.is_new(config), default=None)  # False comes before True

    def choose(history: History, starts_needed: Starts) -> Choice | Done:
        """Choose the config to probe next; end once a worker has stored the rungs, or the probes suffice."""
        is_stored = StudyAttributes(history.study.user_attrs).rungs is not None
        config = next_config(history)
        if is_stored or config is None:
            return Done(reason=ALL_PROBED)
        return retry(history, starts_needed) or Choice(config=config, aim=Aim.CALIBRATE)

    return Strategy(choosers=(choose,))


def calibration_configs(space: Space) -> list[Config]:
    """Return the configs that calibration probes, in this order, until two have run: defaults of some rungs."""
    return [usual(space) | {str(space.ladder): rung} for rung in calibration_rungs(list(map(int, space.rungs)))]


def rungs_after(trials: Sequence[FrozenTrial], space: Space, limits: ProbeSpec) -> tuple[int, ...]:
    """Return the rungs of an `auto` ladder, by a study's trials so far.

    A rung is left out only if it surely needs too much memory or time to start: even two standard deviations below the
    prediction. A rung that has run out of memory or time stays as the last rung.

    Args:
        trials: The trials of the study.
        space: The space, whose ladder holds the doublings.
        limits: How long a start may take, and how much memory must stay free.
    """
    ladder, usual_config = str(space.ladder), usual(space)
    observed = Observed(trials, ladder=ladder)
    known_shares, known_s = (observed.known_amounts(amount, space) for amount in (MEMORY_SHARE, START_S))
    # the errors and deviations are those of logarithms
    memory_model = fitted_after_siblings(space, known_shares, error=0.02, choice_deviation=0.1)
    start_model = fitted_after_siblings(space, known_s, error=0.1, choice_deviation=0.0)

    def possible(rung: int) -> bool:
        """Return whether the usual config on a rung may fit into memory and start in time."""
        config = usual_config | {ladder: rung}
        for model, limit in ((memory_model, 1.0), (start_model, observed.longest_start_s(limits, space))):
            if model is not None:  # something was measured
                mean, deviation = model.expect([config])
                if mean[0] - 2.0 * deviation[0] > limit:
                    return False
        return observed.frontier.exceeded_failure(config) is None  # nothing that needs less has run out

    def safe(rung: int) -> bool:
        """Return whether the usual config on a rung is possible, and expected to leave enough memory free."""
        mean_share = memory_model.expect([usual_config | {ladder: rung}]).mean[0] if memory_model else 0.0
        return possible(rung) and bool(mean_share <= 1.0 - limits.headroom_pct / 100.0)

    tried = {int(trial.params[ladder]) for trial in trials if ladder in trial.params}
    # The user's own rung stays, so that the search compares with it.
    own_rung = next(parameter.own for parameter in space.parameters if parameter.is_ladder)
    if isinstance(own_rung, int) and possible(own_rung):
        tried.add(own_rung)
    return make_rungs(list(map(int, space.rungs)), safe=safe, possible=possible, tried=tried)


def usual(space: Space) -> Config:
    """Return the config that calibration varies: the default of the smallest rung.

    It is the first config of the space where no variant of the agent is called default.
    """
    default = space.default_at(next(iter(space.rungs), None))
    return default if default in space else space.config_of(lambda parameter: parameter.values[0])
