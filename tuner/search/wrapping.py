"""A sampler around another one: it leaves to that one what it does not choose itself."""

from collections.abc import Iterable
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.study import Study
from optuna.trial import FrozenTrial

from tuner.search.history import History
from tuner.search.sampler import CaseSampler
from tuner.study.space import Config, Space


class WrappingSampler(CaseSampler):
    """Does all that another sampler does; whoever derives from it overrides `choose`."""

    def __init__(self, space: Space, inner: CaseSampler) -> None:
        super().__init__(space)
        self._inner = inner

    def choose(self, study: Study, trial: FrozenTrial, history: History) -> Config:
        """Choose the inner sampler's config."""
        self._inner.price = self.price
        return self._inner.choose(study, trial, history)

    def candidates(self) -> Iterable[Config]:
        """Give those of the inner sampler."""
        return self._inner.candidates()

    def exhausted(self, study: Study) -> bool:
        """Tell what the inner sampler tells."""
        return self._inner.exhausted(study)

    def ended(self, study: Study) -> str | None:
        """Say what the inner sampler says."""
        return self._inner.ended(study)

    def unconfirmed(self, study: Study) -> Config | None:
        """Give what the inner sampler gives."""
        return self._inner.unconfirmed(study)

    def origin(self, config: Config) -> str | None:
        """Tell what the inner sampler tells."""
        return self._inner.origin(config)

    def reseed_rng(self) -> None:
        """Start other random numbers in the inner sampler."""
        self._inner.reseed_rng()

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Leave parameters outside the space to the inner sampler."""
        return self._inner.sample_independent(study, trial, param_name, param_distribution)
