"""A study's trials as the search reads them: what was probed, what is due again, where memory ends."""

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import takewhile

from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from tuner.probe.kinds import FailureKind
from tuner.search.front import front
from tuner.search.frontier import Frontier, OutOfMemory
from tuner.search.standing import Reading, Standing, broken, is_failure, ways
from tuner.search.verdict import SAYS_NOTHING
from tuner.study.space import Config, Parameter, Space, Value, config_digest

PATIENCE = "pruner_patience"
"""The one parameter that only the pruner reads: configs that differ in nothing else launch the same probe."""
RETRY = "retry"
"""User attribute of a failed trial whose config is to be probed again."""
WARM = "warm"
"""User attribute of a trial that a session served."""
CONFIRMS = "confirms"
"""User attribute of a trial that measures again, by the trainer's plain command, what a session served."""
ORIGIN = "origin"
"""User attribute of a trial whose config is the best of another case: the name of that case."""
ERROR = "error"
"""User attribute: the standard error of a complete trial's value."""
MEASURED_ON = "measured_on"
"""User attribute: which devices measured a trial; those of another host may read all of it several points apart."""
FAILURE = "failure"
"""User attribute of a trial that gave no number: the kind of its failure."""
MEMORY = "memory_gib"
"""Constraint of a trial: device memory missing, in GiB."""
ELIGIBLE = "eligible"
"""Constraint of a complete trial that may not be the best."""


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
        OutOfMemory(trial.params, trial.constraints[MEMORY])
        for trial in trials
        if trial.constraints and trial.constraints.get(MEMORY, 0.0) > 0.0
    )


def meaningful(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """Leave out the failures from before a trainer that was broken at first has been mended, once something has run."""
    excused = broken(list(readings(trials)))
    return [trial for place, trial in enumerate(trials) if place not in excused]


def has_failed(trial: FrozenTrial) -> bool:
    """Tell whether a trial failed by itself: neither the user nor the end of the tuner stopped it."""
    return is_failure(failure(trial))


def failure(trial: FrozenTrial) -> str | None:
    """Give the kind of a trial's failure; None where nothing tells that it failed."""
    missing_gib = (trial.constraints or {}).get(MEMORY, 0.0)
    return FailureKind.GPU_OOM if missing_gib > 0.0 else trial.user_attrs.get(FAILURE)


def finished(trials: Iterable[FrozenTrial]) -> int:
    """Count the trials that have ended, but for those that are asked again or confirm another."""
    return sum(one.state.is_finished() and not {RETRY, CONFIRMS} & one.user_attrs.keys() for one in trials)


def running(trials: Iterable[FrozenTrial]) -> int:
    """Count the trials that somebody runs now."""
    return sum(one.state == TrialState.RUNNING for one in trials)


def failures_in_a_row(trials: Sequence[FrozenTrial], config: Config) -> int:
    """Count the last trials of a config that failed, one after another, but for failures that say nothing of it."""
    ended = [one for one in trials if one.state.is_finished() and same_launch(one.params, config)]
    failed = takewhile(lambda one: one.state == TrialState.FAIL, reversed(ended))
    return sum(has_failed(one) and failure(one) not in SAYS_NOTHING for one in failed)


class History:
    """What a study has probed so far; a trial dropped before its config was whole does not count."""

    def __init__(self, study: Study, space: Space) -> None:
        self.trials = study.get_trials(deepcopy=False)
        """All trials of the study, as they were read for this."""
        self._trials = [trial for trial in meaningful(self.trials) if _is_whole(trial, space)]
        self._probed = {launch_key(trial.params) for trial in self._trials}
        self._frontier = frontier(self._trials)
        self._space = space
        self._several = len(study.directions) > 1

    def is_new(self, config: Config) -> bool:
        """Tell whether the config is one of the space that has never been launched and may fit into memory."""
        known = launch_key(config) in self._probed
        return not known and self._frontier.beyond(config) is None and config in self._space

    def is_over(self, config: Config) -> bool:
        """Tell whether a probe of the config has ended and is not to be repeated, or it cannot fit into memory."""
        ended = any(
            trial.state.is_finished() and RETRY not in trial.user_attrs and same_launch(trial.params, config)
            for trial in self._trials
        )
        return ended or self._frontier.beyond(config) is not None

    def due(self) -> Config | None:
        """Give the config of the first failed trial that is marked for retry and has not been asked again."""
        for position, trial in enumerate(self._trials):
            if RETRY in trial.user_attrs and not any(
                same_launch(later.params, trial.params) for later in self._trials[position + 1 :]
            ):
                return dict(trial.params)
        return None

    def unconfirmed(self) -> Config | None:
        """Give the config that a session read above everything read cold, noise set aside, and nothing measured cold.

        What a session shows is not yet what a user will see, so the best may only be one that was measured with the
        trainer's plain command. Of several readings of a config their mean counts. What sessions read too high, where
        both were measured, is taken off: it also holds how much the luckiest of many readings flatters its config.
        """
        if self._several:
            return self._unconfirmed_member()
        cold, warm = ways(readings(self._trials))
        flattery = [_value(one) - _value(cold[launch]) for launch, one in warm.items() if launch in cold]
        best = max(cold.values(), key=_value, default=None)
        top = max((one for launch, one in warm.items() if launch not in cold), key=_value, default=None)
        if top is None:
            return None
        usual = sum(flattery) / max(len(flattery), 2)  # one config alone may be an exception
        if best is not None and _value(top) - usual <= _value(best) + _noise(top, best):
            return None
        return dict(self._trials[top.trials[-1]].params)

    def confirmed(self) -> list[Config]:
        """Give the configs that may be the best by what the trainer's plain command has shown, the best one first."""
        cold, _ = ways(readings(self._trials))
        return [dict(self._trials[one.trials[-1]].params) for one in sorted(cold.values(), key=_value, reverse=True)]

    def _unconfirmed_member(self) -> Config | None:
        """Give a config of the Pareto front that sessions alone have measured."""
        members = (self._trials[one.trials[-1]] for one in front(readings(self._trials)))
        return next((dict(newest.params) for newest in members if WARM in newest.user_attrs), None)


def readings(trials: Iterable[FrozenTrial]) -> Iterator[Reading]:
    """Give what the trials that have ended, known by their places, say of their configs."""
    for place, trial in enumerate(trials):
        if trial.state.is_finished():
            may_be_best = trial.state == TrialState.COMPLETE and not (trial.constraints or {}).get(ELIGIBLE)
            yield Reading(
                trial=place,
                launch=launch_key(trial.params),
                state=trial.state.name,
                warm=WARM in trial.user_attrs,
                failure=failure(trial),
                retry=RETRY in trial.user_attrs,
                values=tuple(trial.values) if may_be_best else None,
                error=trial.user_attrs.get(ERROR),
            )


def _value(one: Standing) -> float:
    return one.values[0]


def _noise(one: Standing, other: Standing) -> float:
    """Give the standard error of the difference of two values."""
    return math.hypot(one.error or 0.0, other.error or 0.0)


def _is_whole(trial: FrozenTrial, space: Space) -> bool:
    return bool(trial.params) and (RETRY not in trial.user_attrs or trial.params in space)


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
