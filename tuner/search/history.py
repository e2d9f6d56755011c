"""What a study has probed so far: which config is new, which is due again, which is to be confirmed."""

import math

from optuna.study import Study
from optuna.trial import FrozenTrial

from tuner.search.front import front
from tuner.search.standing import Standing, ways
from tuner.search.trials import frontier, kept, launch_key, meaningful, readings, same_launch
from tuner.study.space import Config, Space


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
            trial.state.is_finished() and not kept(trial).retry and same_launch(trial.params, config)
            for trial in self._trials
        )
        return ended or self._frontier.beyond(config) is not None

    def due(self) -> Config | None:
        """Give the config of the first failed trial that is marked for retry and has not been asked again."""
        for position, trial in enumerate(self._trials):
            if kept(trial).retry and not any(
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
        return next((dict(newest.params) for newest in members if kept(newest).warm), None)


def _value(one: Standing) -> float:
    return one.values[0]


def _noise(one: Standing, other: Standing) -> float:
    """Give the standard error of the difference of two values."""
    return math.hypot(one.error or 0.0, other.error or 0.0)


def _is_whole(trial: FrozenTrial, space: Space) -> bool:
    return bool(trial.params) and (not kept(trial).retry or trial.params in space)
