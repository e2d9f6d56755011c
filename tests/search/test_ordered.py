"""A list of configs in an in-memory study, probed by one worker or two workers."""

import optuna
from optuna.trial import Trial
from tests_search import given
from tests_space import USUAL

from tuner.search.choosing import Choice, History, Starts
from tuner.search.strategies import in_order
from tuner.study.space import Config

LISTED = [config for config in USUAL.configs() if config["pruner_patience"] == USUAL.values("pruner_patience")[0]]
RUNGS = list(dict.fromkeys(config["num_envs"] for config in LISTED))


class Worker:
    """Asks a study for the next config of the list, and keeps the session of its rung open."""

    def __init__(self, study: optuna.Study, *, sessions: bool = True) -> None:
        self._study = study
        self._sessions = sessions
        self._rung: object = None
        self.starts = 0

    def ask(self) -> tuple[Trial, Config]:
        answer = in_order(LISTED).choose(History(self._study, USUAL), self._starts_needed())
        assert isinstance(answer, Choice)
        trial, config = given(self._study, USUAL, answer.config), answer.config
        self.starts += config["num_envs"] != self._rung
        self._rung = config["num_envs"]
        return trial, config

    def _starts_needed(self) -> Starts:
        return lambda config: float(not self._sessions or config["num_envs"] != self._rung)


def asked(count: int, *workers: Worker, study: optuna.Study) -> list[Config]:
    """Let workers probe in turn. Each worker keeps its trial open while the others probe."""
    configs: list[Config] = []
    running: list[Trial] = []
    for turn in range(count):
        if len(running) == len(workers):
            study.tell(running.pop(0), 1.0)
        trial, config = workers[turn % len(workers)].ask()
        running.append(trial)
        configs.append(config)
    return configs


def test_one_worker_keeps_the_order() -> None:
    study = optuna.create_study(direction="maximize")
    assert asked(len(LISTED), Worker(study), study=study) == LISTED


def test_two_workers_probe_each_config_once_and_start_each_rung_s_session_once() -> None:
    study = optuna.create_study(direction="maximize")
    workers = Worker(study), Worker(study)
    configs = asked(len(LISTED), *workers, study=study)
    assert sorted(map(str, configs)) == sorted(map(str, LISTED))
    assert sum(worker.starts for worker in workers) <= len(RUNGS) + 1  # the workers share the last rung that is left


def test_two_workers_without_sessions_keep_to_rungs_of_their_own_while_there_are_two() -> None:
    study = optuna.create_study(direction="maximize")
    first, second = asked(2, Worker(study, sessions=False), Worker(study, sessions=False), study=study)
    assert [first["num_envs"], second["num_envs"]] == RUNGS[:2]
