"""Shared by the tests of the search: a study in memory that a strategy searches as the store does."""

import optuna
from optuna.study import Study
from optuna.trial import Trial

from tuner.records.schema import ORIGIN
from tuner.search.choosing import Choice, Done, History, Strategy, one_start
from tuner.search.trials import running
from tuner.study import Config, Space


def given(study: Study, space: Space, config: Config) -> Trial:
    """Begin a trial of a config."""
    study.add_trial(running(space, config))
    trial = Trial(study, study.get_trials(deepcopy=False)[-1]._trial_id)
    assert trial.params == config
    return trial


class Searched:
    """A study in memory, with its strategy."""

    def __init__(self, space: Space, strategy: Strategy) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.space = space
        self.strategy = strategy
        self.study = optuna.create_study(direction="maximize")

    @property
    def history(self) -> History:
        return History(self.study, self.space)

    @property
    def answer(self) -> Choice | Done:
        """Return what the strategy chooses now."""
        return self.strategy.choose(self.history, one_start)

    @property
    def ended(self) -> str | None:
        answer = self.answer
        return answer.reason if isinstance(answer, Done) else None

    @property
    def unconfirmed(self) -> Config | None:
        return self.strategy.confirm(self.history, one_start)

    def begin(self) -> tuple[Trial, Config] | None:
        """Begin a trial of the config that the strategy chooses now; None if the search has ended."""
        answer = self.answer
        if isinstance(answer, Done):
            return None
        trial = given(self.study, self.space, answer.config)
        if answer.origin:
            trial.set_user_attr(ORIGIN, answer.origin)
        return trial, answer.config

    def ask(self) -> tuple[Trial, Config]:
        """Begin a trial. The search must not have ended."""
        begun = self.begin()
        assert begun is not None
        return begun
