"""A study's trials as the search reads them: what was probed, what is due again, where memory ends."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import takewhile

from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import FrozenTrial, Trial, TrialState

from tuner.kept.trial import KeptTrial
from tuner.search.frontier import Frontier, OutOfMemory
from tuner.search.standing import Reading, broken, counted, is_failure
from tuner.search.verdict import SAYS_NOTHING
from tuner.study.space import Config, Parameter, Space, Value, config_digest

PATIENCE = "pruner_patience"
"""The one parameter that only the pruner reads: configs that differ in nothing else launch the same probe."""


def distribution(parameter: Parameter) -> BaseDistribution:
    """Give Optuna's counterpart: a categorical for written rungs and choices, integers for a range.

    For an `auto` ladder it is every integer between its bounds: rungs are made only when the first trials are there.
    """
    values = parameter.values
    if parameter.bounds:
        return IntDistribution(*parameter.bounds, log=True)
    if parameter.is_range:
        low, high = int(values[0]), int(values[-1])
        return IntDistribution(low, high, step=int(values[1]) - low if len(values) > 1 else 1)
    return CategoricalDistribution(values)


def suggest(trial: Trial, space: Space) -> Config:
    """Read the config that the sampler chose for a trial."""

    def pick(parameter: Parameter) -> Value:
        kind = distribution(parameter)
        if isinstance(kind, IntDistribution):
            return trial.suggest_int(parameter.name, kind.low, kind.high, step=kind.step, log=kind.log)
        return trial.suggest_categorical(parameter.name, parameter.values)  # pyright: ignore[reportReturnType]

    return space.draw(pick)


def frontier(trials: Sequence[FrozenTrial]) -> Frontier:
    """Learn where memory ends from the trials that were told with a memory constraint."""
    return Frontier(
        OutOfMemory(trial.params, missing_gib) for trial in trials if (missing_gib := kept(trial).missing_gib) > 0.0
    )


def meaningful(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """Leave out the failures from before a trainer that was broken at first has been mended, once something has run."""
    excused = broken(list(readings(trials)))
    return [trial for place, trial in enumerate(trials) if place not in excused]


def has_failed(trial: FrozenTrial) -> bool:
    """Tell whether a trial failed by itself: neither the user nor the end of the tuner stopped it."""
    return is_failure(kept(trial).failure)


def kept(trial: FrozenTrial) -> KeptTrial:
    """Return the facts that are kept of a trial."""
    return KeptTrial(trial.user_attrs, trial.constraints)


def finished(trials: Iterable[FrozenTrial]) -> int:
    """Count the trials that have ended, but for those that are asked again or confirm another."""
    ended = (kept(one) for one in trials if one.state.is_finished())
    return sum(not (one.retry or one.confirms) for one in ended)


def running(trials: Iterable[FrozenTrial]) -> int:
    """Count the trials that somebody runs now."""
    return sum(one.state == TrialState.RUNNING for one in trials)


def failures_in_a_row(trials: Sequence[FrozenTrial], config: Config) -> int:
    """Count the last trials of a config that failed, one after another, but for failures that say nothing of it."""
    ended = [one for one in trials if one.state.is_finished() and same_launch(one.params, config)]
    failed = takewhile(lambda one: one.state == TrialState.FAIL, reversed(ended))
    return sum(has_failed(one) and kept(one).failure not in SAYS_NOTHING for one in failed)


def readings(trials: Iterable[FrozenTrial]) -> Iterator[Reading]:
    """Yield the measurement of each trial that has ended; its place among the trials is its number."""
    for place, trial in enumerate(trials):
        if trial.state.is_finished():
            facts = kept(trial)
            yield Reading(
                trial=place,
                launch=launch_key(trial.params),
                state=trial.state.name,
                warm=facts.warm,
                failure=facts.failure,
                retry=facts.retry,
                values=counted(trial.values, state=trial.state.name, ineligible=facts.ineligible),
                error=facts.error,
            )


def same_launch(config: Config, other: Config) -> bool:
    """Tell whether two configs launch the same probe."""
    return launch_key(config) == launch_key(other)


def launch_digest(config: Config) -> str:
    """Name what is launched of a config: configs that launch the same probe have the same digest."""
    return config_digest(launched(config))


def launched(config: Config) -> Config:
    """Give what is launched of a config: all but the pruner's patience."""
    return {name: value for name, value in config.items() if name != PATIENCE}


def launch_key(config: Config) -> Hashable:
    """Give what configs that launch the same probe have in common."""
    return frozenset(launched(config).items())
