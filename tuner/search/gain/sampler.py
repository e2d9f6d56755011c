"""The sampler `gain` for any Optuna study: see docs/sampler.md."""

from collections.abc import Sequence

from optuna.study import Study

from tuner.search.choosing import Done, History, Price, free
from tuner.search.gain.chooser import Gain
from tuner.search.gain.prospects import Goal
from tuner.search.samplers import StrategySampler
from tuner.search.siblings import Sibling
from tuner.search.strategies import by_gain
from tuner.study import TRAINING_HOURS, Config, ProbeSpec, Space


class GainSampler(StrategySampler):
    """An Optuna sampler that weighs what a config is expected to gain against the seconds it takes; see `Gain`.

    The study has one objective, which it maximises or minimises.
    """

    def __init__(
        self,
        space: Space,
        limits: ProbeSpec | None = None,
        *,
        training_hours: float = TRAINING_HOURS,
        siblings: Sequence[Sibling] = (),
        price: Price = free,
    ) -> None:
        """See `Gain`, `Goal` for `training_hours`, and `Price` for `price`."""
        goal = Goal(training_hours=training_hours)
        self._gain = Gain(space, limits, goal=goal, siblings=siblings)
        super().__init__(space, by_gain(space, self._gain), price=price)

    def best(self, study: Study) -> Config | None:
        """Return the eligible config with the highest expected value, without the pruner's patience."""
        return self._gain.best(History(study, self._space))

    def after_end(self, history: History, done: Done) -> Config:
        """Choose the most informative config left, otherwise the best, so that `study.optimize` runs all its trials."""
        return self._gain.after_end(history, self._price)
