"""The default variant of a rung is probed before any config that a constraint compares with it."""

from optuna.study import Study
from optuna.trial import FrozenTrial

from tuner.search.history import History
from tuner.search.wrapping import WrappingSampler
from tuner.study.space import LADDER, Config


class DefaultFirst(WrappingSampler):
    """Chooses as another sampler does, but the rung's default config in place of any that it is not yet known for.

    So a constraint is judged once, as soon as its config has been measured. Two workers that begin a rung at the same
    time both measure its default: neither waits for the other.
    """

    def choose(self, study: Study, trial: FrozenTrial, history: History) -> Config:
        """Choose the inner sampler's config, or its rung's default first; one that cannot be had is not waited for."""
        config = super().choose(study, trial, history)
        default = self._space.default_at(config.get(LADDER))
        return config if default not in self._space or history.is_over(default) else default
