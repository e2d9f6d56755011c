"""Makes an Optuna sampler of a strategy, for any Optuna study."""

from typing import Any

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial

from tuner.errors import StudyError
from tuner.search.choosing import Choice, Done, Price, Strategy, free
from tuner.search.history import History
from tuner.search.trials import distribution
from tuner.study.space import Config, Space


class StrategySampler(BaseSampler):
    """Assigns to each trial the config that a strategy chooses. Parameters outside the space are drawn at random."""

    def __init__(self, space: Space, strategy: Strategy, *, price: Price = free) -> None:
        """The sampler calls `price` before each trial: see `Price`."""
        self._space = space
        self._strategy = strategy
        self._price = price
        self._distributions = {parameter.name: distribution(parameter) for parameter in space.parameters}
        self._elsewhere = RandomSampler()

    def exhausted(self, study: Study) -> bool:
        """Check whether nothing is left to probe; `ended` returns the reason."""
        return self.ended(study) is not None

    def ended(self, study: Study) -> str | None:
        """Return why nothing is left to probe; None while something is."""
        answer = self._strategy.choose(History(study, self._space), self._price)
        return answer.reason if isinstance(answer, Done) else None

    def unconfirmed(self, study: Study) -> Config | None:
        """Return the best config if only sessions have measured it; None if the plain command has."""
        choice = self._strategy.confirm(History(study, self._space), self._price)
        return choice.config if choice else None

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return the whole space, so that `sample_relative` decides all parameters together."""
        return dict(self._distributions)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Choose the config of a trial."""
        history = History(study, self._space, asked=trial.number)
        answer = self._strategy.choose(history, self._price)
        return answer.config if isinstance(answer, Choice) else self.after_end(history, answer)

    def after_end(self, history: History, done: Done) -> Config:
        """Choose the config of a trial that is asked for after the end. Raises StudyError."""
        raise StudyError(f"the search has ended: {done.reason}; check `sampler.exhausted(study)` before each trial")

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Draw a parameter outside the space at random."""
        return self._elsewhere.sample_independent(study, trial, param_name, param_distribution)

    def reseed_rng(self) -> None:
        """Start other random numbers, as Optuna asks of samplers that run side by side."""
        self._elsewhere.reseed_rng()


class GivenSampler(StrategySampler):
    """Assigns the same config to each trial, without reading the study's trials."""

    def __init__(self, space: Space, config: Config) -> None:
        super().__init__(space, Strategy(choosers=()))
        self._config = config

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the config."""
        return self._config


def ask_for(study: Study, space: Space, config: Config) -> Trial:
    """Begin a trial of a given config; `suggest` then reads the config from the trial.

    The study keeps a sampler that knows only this config.
    """
    study.sampler = GivenSampler(space, config)
    return study.ask()
