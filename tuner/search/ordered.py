"""A given list of configs, one after another: what records a table."""

from collections.abc import Iterable, Sequence
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.study import Study
from optuna.trial import FrozenTrial

from tuner.search.sampler import CaseSampler
from tuner.search.trials import History
from tuner.study.space import Config, Space


class OrderedSampler(CaseSampler):
    """Probes the configs it was given, in their order, but for those that cannot fit into memory."""

    def __init__(self, space: Space, configs: Sequence[Config]) -> None:
        super().__init__(space)
        self._configs = configs

    def candidates(self) -> Iterable[Config]:
        """Give the list."""
        return self._configs

    def choose(self, study: Study, trial: FrozenTrial, history: History) -> Config:
        """Choose the first that is new."""
        return next(filter(history.is_new, self._configs))

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Refuse: every parameter belongs to the space."""
        raise KeyError(f"{param_name} is no parameter of {self._space.names}")
