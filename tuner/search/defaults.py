"""The default variant of a rung is probed before any config that a constraint compares with it."""

from collections.abc import Iterable
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.study import Study
from optuna.trial import FrozenTrial

from tuner.search.sampler import CaseSampler
from tuner.search.trials import History
from tuner.study.space import LADDER, Config, Space


class DefaultFirst(CaseSampler):
    """Chooses as another sampler does, but the rung's default config in place of any that it is not yet known for.

    So a constraint is judged once, as soon as its config has been measured. Two workers that begin a rung at the same
    time both measure its default: neither waits for the other.
    """

    def __init__(self, space: Space, inner: CaseSampler) -> None:
        super().__init__(space)
        self._inner = inner

    def choose(self, study: Study, trial: FrozenTrial, history: History) -> Config:
        """Choose the inner sampler's config, or its rung's default first; one that cannot be had is not waited for."""
        self._inner.price = self.price
        config = self._inner.choose(study, trial, history)
        default = self._space.default_at(config.get(LADDER))
        return config if default not in self._space or history.is_over(default) else default

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

    def reseed_rng(self) -> None:
        """Start other random numbers in the inner sampler."""
        self._inner.reseed_rng()

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Leave parameters outside the space to the inner sampler."""
        return self._inner.sample_independent(study, trial, param_name, param_distribution)
