"""The next config: a retry that is due, a seed not yet probed, else what TPE draws or what lies nearest; none twice."""

import random
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from tuner.search.history import History
from tuner.search.trials import distribution
from tuner.study.space import LADDER, Config, Parameter, Space, Value
from tuner.study.spec import SearchSpec

DRAWS = 4
"""Drawn at a time, of which the cheapest is probed."""

Price = Callable[[Config], float]
"""How many starts of a trainer a probe of a config takes now: 0 in a session that is open, otherwise 1."""


def free(config: Config) -> float:
    """Price every config the same: each starts its trainer."""
    return 1.0


class CaseSampler(BaseSampler):
    """Chooses whole configs of a `Space`, conditions included: what is due first, then what `choose` says."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._distributions = {parameter.name: distribution(parameter) for parameter in space.parameters}
        self.forced: Config | None = None
        """What the next trial is to be, whatever else would be chosen."""
        self.price: Price = free

    @abstractmethod
    def choose(self, study: Study, trial: FrozenTrial, history: History) -> Config:
        """Choose a config that `history` calls new; `candidates` holds at least one."""

    def candidates(self) -> Iterable[Config]:
        """Give every config that may be chosen."""
        return self._space.configs()

    def exhausted(self, study: Study) -> bool:
        """Tell whether every config has been probed or cannot fit; ask for no trial then."""
        history = History(study, self._space)
        return history.due() is None and not any(map(history.is_new, self.candidates()))

    def ended(self, study: Study) -> str | None:
        """Say why nothing is left to probe; None while something is."""
        return "every config has been probed or cannot fit" if self.exhausted(study) else None

    def unconfirmed(self, study: Study) -> Config | None:
        """Give the best config, where a session alone has measured it; None where it was measured cold."""
        return History(study, self._space).unconfirmed()

    def origin(self, config: Config) -> str | None:
        """Name the case that the config just chosen comes from; None where it is not another case's best."""
        return None

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Claim the whole space, so that `sample_relative` decides every parameter together."""
        return dict(self._distributions)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Choose the next config; `exhausted` tells beforehand whether there is one."""
        forced, self.forced = self.forced, None
        history = History(study, self._space)
        return forced or history.due() or self.choose(study, trial, history)


class ConfigSampler(CaseSampler):
    """Probes the seeds, then what an inner Optuna sampler draws."""

    def __init__(self, space: Space, search: SearchSpec, *, resumed_at: int = 0) -> None:
        """`resumed_at`, the number of trials so far, keeps a resumed search from repeating its random numbers."""
        super().__init__(space)
        self._seeds = space.seeds(search.seeds_per_variant)
        self._random = random.Random(search.seed + resumed_at)  # noqa: S311 - choosing configs is no cryptography
        self._inner = _inner(search, resumed_at)

    def reseed_rng(self) -> None:
        """Start other random numbers, as Optuna asks of samplers that run side by side."""
        self._inner.reseed_rng()

    def choose(self, study: Study, trial: FrozenTrial, history: History) -> Config:
        """Choose a seed as long as there are new ones, then draw."""
        return self._seed(history) or self._drawn(study, trial, history)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Leave parameters outside the space to the inner sampler."""
        return self._inner.sample_independent(study, trial, param_name, param_distribution)

    def _seed(self, history: History) -> Config | None:
        return next(filter(history.is_new, self._seeds), None)

    def _drawn(self, study: Study, trial: FrozenTrial, history: History) -> Config:
        """Draw, and give the cheapest new one, or, as TPE repeats itself on small spaces, the new one nearest to it."""
        draws = [self._draw(study, trial) for _ in range(DRAWS)]
        if new := list(filter(history.is_new, draws)):
            return min(new, key=self.price)
        nearest = sorted(
            self._space.configs(), key=lambda config: (self._distance(config, draws[0]), self._random.random())
        )
        return next(filter(history.is_new, nearest))

    def _distance(self, config: Config, other: Config) -> float:
        return sum(
            _apart(parameter, config.get(parameter.name), other.get(parameter.name))
            for parameter in self._space.parameters
        )

    def _draw(self, study: Study, trial: FrozenTrial) -> Config:
        searched = self._inner.infer_relative_search_space(study, trial)
        together = self._inner.sample_relative(study, trial, searched)

        def pick(parameter: Parameter) -> Value:
            if parameter.name in together:
                return parameter.nearest(together[parameter.name])
            kind = self._distributions[parameter.name]
            return parameter.nearest(self._inner.sample_independent(study, trial, parameter.name, kind))

        return self._space.draw(pick)


def _apart(parameter: Parameter, value: Value | None, other: Value | None) -> float:
    """Give 0 for equal values, for rungs and ranges the share of the values that lie between, otherwise 1."""
    if value == other:
        return 0.0
    if value is None or other is None or not (parameter.is_range or parameter.name == LADDER):
        return 1.0
    return abs(parameter.values.index(value) - parameter.values.index(other)) / len(parameter.values)


def _inner(search: SearchSpec, resumed_at: int) -> BaseSampler:
    if search.sampler == "random":
        return RandomSampler(seed=search.seed + resumed_at)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return TPESampler(seed=search.seed + resumed_at, multivariate=True, group=True, constant_liar=True)
