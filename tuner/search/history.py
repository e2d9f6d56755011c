"""What a study has probed so far: which config is new, which is due again, which must be confirmed."""

import math
from dataclasses import replace
from functools import cached_property

from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial

from tuner.search.front import front
from tuner.search.frontier import Frontier
from tuner.search.standing import EndedTrial, Standing, ways
from tuner.search.trials import frontier, has_failed, kept, launch_of, meaningful, readings, since_mended
from tuner.study.launch import launch_digest, same_launch
from tuner.study.space import Config, Space


class History:
    """What a study has probed so far; the trials are read once.

    A trial that ended before it had a whole config does not count.
    """

    def __init__(self, study: Study, space: Space, *, asked: int | None = None) -> None:
        """`asked`: the number of the trial that is being asked for, if it has begun; the history leaves it out."""
        self.study = study
        self._space = space
        self._asked = asked

    @cached_property
    def trials(self) -> list[FrozenTrial]:
        """All trials of the study since its set-up was mended, if it was."""
        return [one for one in since_mended(self.study) if one.number != self._asked]

    @property
    def number(self) -> int:
        """The number that the next trial has."""
        return len(self.study.get_trials(deepcopy=False)) if self._asked is None else self._asked

    @property
    def signs(self) -> tuple[float, ...]:
        """1 for each objective that is maximised, -1 for each that is minimised."""
        return tuple(-1.0 if one == StudyDirection.MINIMIZE else 1.0 for one in self.study.directions)

    @cached_property
    def meaningful(self) -> list[FrozenTrial]:
        """All trials but the failures of a trainer that was broken at first."""
        return meaningful(self.trials)

    @cached_property
    def _trials(self) -> list[FrozenTrial]:
        return [trial for trial in self.meaningful if _is_whole(trial, self._space)]

    @cached_property
    def _probed(self) -> set[str]:
        return set(map(launch_of, self._trials))

    @cached_property
    def _frontier(self) -> Frontier:
        return frontier(self._trials, self._space.ladder)

    @cached_property
    def _readings(self) -> list[EndedTrial]:
        """What all trials say about their configs, with values that are better the larger they are."""
        return [
            one if one.values is None else replace(one, values=_times(one.values, self.signs))
            for one in readings(self._trials)
        ]

    def is_new(self, config: Config) -> bool:
        """Check whether a config of the space has never been launched and may fit into memory."""
        known = launch_digest(config) in self._probed
        return not known and self._frontier.beyond(config) is None and config in self._space

    def is_over(self, config: Config) -> bool:
        """Check whether the config has been probed and needs no retry, or cannot fit into memory."""
        ended = any(
            trial.state.is_finished() and not kept(trial).retry and same_launch(trial.params, config)
            for trial in self._trials
        )
        return ended or self._frontier.beyond(config) is not None

    def due(self) -> FrozenTrial | None:
        """Return the first failed trial that is marked for retry and has not been repeated."""
        for position, trial in enumerate(self._trials):
            if kept(trial).retry and not any(
                same_launch(later.params, trial.params) for later in self._trials[position + 1 :]
            ):
                return trial
        return None

    def failed_before(self, config: Config) -> bool:
        """Check whether a probe of the config failed by itself and was marked for retry."""
        marked = (trial for trial in self.trials if kept(trial).retry)
        return any(has_failed(trial) and same_launch(trial.params, config) for trial in marked)

    def unconfirmed(self) -> Config | None:
        """Return the config to confirm: no trial that counts has measured it, and it may be better than all that have.

        Users run the plain command, so only configs measured by that command may be the best. A config counts with the
        mean of its measurements. From warm means the excess of warm over cold means is subtracted, averaged over the
        configs measured in both ways. The excess also contains the luck of the config that looks best.
        """
        if len(self.signs) > 1:
            return self._unconfirmed_member()
        cold, warm = ways(self._readings)
        excess = [_value(one) - _value(cold[launch]) for launch, one in warm.items() if launch in cold]
        best = max(cold.values(), key=_value, default=None)
        top = max((one for launch, one in warm.items() if launch not in cold), key=_value, default=None)
        if top is None:
            return None
        usual = sum(excess) / max(len(excess), 2)  # a single config may be an exception
        if best is not None and _value(top) - usual <= _value(best) + _noise(top, best):
            return None
        return dict(self._trials[top.trials[-1]].params)

    def confirmed(self) -> list[Config]:
        """Return the configs that may be the best according to their cold trials, the best one first."""
        cold, _ = ways(self._readings)
        return [dict(self._trials[one.trials[-1]].params) for one in sorted(cold.values(), key=_value, reverse=True)]

    def _unconfirmed_member(self) -> Config | None:
        """Return a config of the Pareto front that has only provisional measurements: see `EndedTrial.provisional`."""
        members = (self._trials[one.trials[-1]] for one in front(self._readings))
        return next((dict(one.params) for one in members if kept(one).warm or kept(one).beside), None)


def _value(one: Standing) -> float:
    return one.values[0]


def _noise(one: Standing, other: Standing) -> float:
    """Return the standard error of the difference of two values."""
    return math.hypot(one.error or 0.0, other.error or 0.0)


def _times(values: tuple[float, ...], signs: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(value * sign for value, sign in zip(values, signs, strict=True))


def _is_whole(trial: FrozenTrial, space: Space) -> bool:
    return bool(trial.params) and (not kept(trial).retry or trial.params in space)
