"""The next config: a retry that is due, a seed not yet probed, else what TPE draws or what lies nearest; none twice."""

import random
import warnings
from collections.abc import Hashable, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial

from tuner.search.frontier import Frontier, OutOfMemory
from tuner.study.space import LADDER, Config, Parameter, Space, Value
from tuner.study.spec import SearchSpec

PATIENCE = "pruner_patience"
"""The one parameter that only the pruner reads: configs that differ in nothing else launch the same probe."""
RETRY = "retry"
"""User attribute of a failed trial whose config is to be probed again."""
MEMORY = "memory_gib"
"""Constraint of a trial: device memory missing, in GiB."""
ELIGIBLE = "eligible"
"""Constraint of a complete trial that may not be the best."""


def distribution(parameter: Parameter) -> BaseDistribution:
    """Give Optuna's counterpart: a categorical for rungs and choices, integers for a range."""
    values = parameter.values
    if parameter.is_range:
        low, high = int(values[0]), int(values[-1])
        return IntDistribution(low, high, step=int(values[1]) - low if len(values) > 1 else 1)
    return CategoricalDistribution(values)


def suggest(trial: Trial, space: Space) -> Config:
    """Read the config that the sampler chose for a trial."""

    def pick(parameter: Parameter) -> Value:
        kind = distribution(parameter)
        if isinstance(kind, IntDistribution):
            return trial.suggest_int(parameter.name, kind.low, kind.high, step=kind.step)
        return trial.suggest_categorical(parameter.name, parameter.values)  # pyright: ignore[reportReturnType]

    return space.draw(pick)


def frontier(trials: Sequence[FrozenTrial]) -> Frontier:
    """Learn where memory ends from the trials that were told with a memory constraint."""
    return Frontier(
        OutOfMemory(trial.params, trial.constraints[MEMORY])
        for trial in trials
        if trial.constraints and trial.constraints.get(MEMORY, 0.0) > 0.0
    )


class ConfigSampler(BaseSampler):
    """Chooses whole configs of a `Space`, conditions included, around an inner Optuna sampler."""

    def __init__(self, space: Space, search: SearchSpec, *, resumed_at: int = 0) -> None:
        """`resumed_at`, the number of trials so far, keeps a resumed search from repeating its random numbers."""
        self._space = space
        self._distributions = {parameter.name: distribution(parameter) for parameter in space.parameters}
        self._seeds = space.seeds(search.seeds_per_variant)
        self._random = random.Random(search.seed + resumed_at)  # noqa: S311 - choosing configs is no cryptography
        self._inner = _inner(search, resumed_at)

    def exhausted(self, study: Study) -> bool:
        """Tell whether every config has been probed or cannot fit; ask for no trial then."""
        history = _History(study, self._space)
        return history.due() is None and not any(map(history.is_new, self._space.configs()))

    def reseed_rng(self) -> None:
        """Start other random numbers, as Optuna asks of samplers that run side by side."""
        self._inner.reseed_rng()

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Claim the whole space, so that `sample_relative` decides every parameter together."""
        return dict(self._distributions)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Choose the next config; `exhausted` tells beforehand whether there is one."""
        history = _History(study, self._space)
        return history.due() or self._seed(history) or self._drawn(study, trial, history)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Leave parameters outside the space to the inner sampler."""
        return self._inner.sample_independent(study, trial, param_name, param_distribution)

    def _seed(self, history: "_History") -> Config | None:
        return next(filter(history.is_new, self._seeds), None)

    def _drawn(self, study: Study, trial: FrozenTrial, history: "_History") -> Config:
        """Draw once; TPE repeats itself on small spaces, so give the nearest new config where the draw is not new."""
        draw = self._draw(study, trial)
        if history.is_new(draw):
            return draw
        nearest = sorted(
            self._space.configs(), key=lambda config: (self._distance(config, draw), self._random.random())
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
                return together[parameter.name]
            kind = self._distributions[parameter.name]
            return self._inner.sample_independent(study, trial, parameter.name, kind)

        return self._space.draw(pick)


class _History:
    """What a study has probed so far; a trial dropped before its config was whole does not count."""

    def __init__(self, study: Study, space: Space) -> None:
        self._trials = [trial for trial in study.get_trials(deepcopy=False) if _is_whole(trial, space)]
        self._probed = {_launch(trial.params) for trial in self._trials}
        self._frontier = frontier(self._trials)

    def is_new(self, config: Config) -> bool:
        """Tell whether the config has never been launched and may fit into memory."""
        return _launch(config) not in self._probed and self._frontier.beyond(config) is None

    def due(self) -> Config | None:
        """Give the config of the first failed trial that is marked for retry and has not been asked again."""
        for position, trial in enumerate(self._trials):
            if trial.user_attrs.get(RETRY) and all(
                later.params != trial.params for later in self._trials[position + 1 :]
            ):
                return dict(trial.params)
        return None


def _is_whole(trial: FrozenTrial, space: Space) -> bool:
    return bool(trial.params) and (not trial.user_attrs.get(RETRY) or trial.params in space)


def _launch(config: Config) -> Hashable:
    """Give what configs that launch the same probe have in common."""
    return frozenset({**config, PATIENCE: None}.items())


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
