"""A given list of configs, one after another: what records a table."""

from collections.abc import Iterable, Sequence
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from tuner.search.history import History
from tuner.search.sampler import CaseSampler
from tuner.study.space import LADDER, Config, Space


class OrderedSampler(CaseSampler):
    """Probes the configs it was given, in their order, but for those that cannot fit into memory.

    Workers side by side keep to rungs of their own, so that each rung's session is started once.
    """

    def __init__(self, space: Space, configs: Sequence[Config]) -> None:
        super().__init__(space)
        self._configs = configs

    def candidates(self) -> Iterable[Config]:
        """Give the list."""
        return self._configs

    def choose(self, study: Study, trial: FrozenTrial, history: History) -> Config:
        """Choose the first new one of the open session, or of a rung that nobody is at, or of all."""
        new = list(filter(history.is_new, self._configs))
        running = (one for one in history.trials if one.state == TrialState.RUNNING)
        elsewhere = {one.params.get(LADDER) for one in running if one.number != trial.number}
        return min(new, key=lambda config: (self.price(config) > 0.0, config.get(LADDER) in elsewhere))

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Refuse: every parameter belongs to the space."""
        raise KeyError(f"{param_name} is no parameter of {self._space.names}")
