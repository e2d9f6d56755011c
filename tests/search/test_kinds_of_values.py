"""Booleans, fractions, logarithmic ranges and names with dots: chosen by every chooser, kept by the database."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from tests_search import Searched, given

from tuner.errors import StudyError
from tuner.records.schema import ERROR
from tuner.search.choosing import Strategy
from tuner.search.gain.chooser import Gain, GainSampler, by_gain
from tuner.search.gain.expected_gain import Goal
from tuner.search.gain.pool import Pool
from tuner.search.samplers import space_filling
from tuner.search.strategies import by_drawing, in_order
from tuner.search.trials import distribution, suggest
from tuner.study.space import Config, Space
from tuner.study.spec import SearchSpec, StudySpec

EVERY_KIND = {
    "env.num_envs": {"range": [64, 512], "log": True},
    "headless": {"choices": [False, True]},
    "agent.lr": {"range": [0.0001, 0.01], "log": True, "step": 10},
    "dropout": {"range": [0.1, 0.3], "step": 0.1, "when": {"headless": True}},
    "clip": {"choices": [0.2, 1]},
}
"""4 rungs, 3 learning rates, 2 clips, and 1 or 3 dropouts: 96 configs."""
SPACE = StudySpec.model_validate({"name": "kinds", "trainer": {"name": "command"}, "space": EVERY_KIND}).build_space()
BEST: Config = {"env.num_envs": 512, "headless": True, "agent.lr": 0.001, "dropout": 0.2, "clip": 1}


def quality(config: Config) -> float:
    """Give the most for `BEST`."""
    rungs = np.log2(float(config["env.num_envs"])) - 9
    rate = abs(np.log10(float(config["agent.lr"])) + 3)
    return 80.0 + 5 * rungs + 4 * config["headless"] - 3 * rate - 20 * abs(float(config.get("dropout", 0.2)) - 0.2)


def drawn(kind: str) -> Callable[[Space], Strategy]:
    return lambda space: by_drawing(space, SearchSpec.model_validate({"sampler": kind}))


CHOOSERS: dict[str, Callable[[Space], Strategy]] = {
    "gain": lambda space: by_gain(space, Gain(space, goal=Goal(training_hours=1000.0))),
    "tpe": drawn("tpe"),
    "random": drawn("random"),
    "recording": lambda space: in_order(space_filling(space, 96)),
}


MOST = 40


@cache
def searched(chooser: str, most: int) -> list[Config]:
    search = Searched(SPACE, CHOOSERS[chooser](SPACE))
    asked: list[Config] = []
    while len(asked) < most and (begun := search.begin()):
        trial, config = begun
        trial.set_user_attr(ERROR, 0.2)
        search.study.tell(trial, quality(config))
        asked.append(config)
    return asked


@pytest.mark.parametrize("name", CHOOSERS)
def test_every_chooser_chooses_values_of_the_study_file(name: str) -> None:
    asked = searched(name, MOST if name == "gain" else MOST // 2)
    assert len(asked) >= 10
    members = {parameter.name: {repr(value) for value in parameter.values} for parameter in SPACE.parameters}
    assert all(config in SPACE for config in asked)
    assert [value for config in asked for name, value in config.items() if repr(value) not in members[name]] == []


def test_gain_finds_the_best_with_part_of_the_probes() -> None:
    asked = searched("gain", MOST)
    assert max(map(quality, asked)) == quality(BEST)
    assert len(asked) <= MOST < len(list(SPACE.configs())) / 2


def test_a_database_gives_the_same_values_back(tmp_path: Path) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(storage=f"sqlite:///{tmp_path}/study.db", direction="maximize")
    configs = space_filling(SPACE, 12)
    for config in configs:
        study.tell(given(study, SPACE, config), 1.0)
    kept = [trial.params for trial in study.get_trials()]
    assert [repr(sorted(params.items())) for params in kept] == [repr(sorted(config.items())) for config in configs]


def test_optuna_knows_ranges_as_numbers() -> None:
    kinds = {parameter.name: distribution(parameter) for parameter in SPACE.parameters}
    assert kinds == {
        "env.num_envs": IntDistribution(64, 512, log=True),
        "headless": CategoricalDistribution((False, True)),
        "agent.lr": FloatDistribution(0.0001, 0.01, log=True),
        "dropout": FloatDistribution(0.1, 0.3, step=0.1),
        "clip": CategoricalDistribution((0.2, 1)),
    }


@pytest.mark.parametrize("value", [0.1, 0.2, 0.3])
def test_a_plain_study_can_suggest_any_of_them(value: float) -> None:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.enqueue_trial({**BEST, "dropout": value})
    assert suggest(study.ask(), SPACE) == {**BEST, "dropout": value}


def test_steps_of_a_range_are_equally_far_apart() -> None:
    pool = Pool(SPACE)
    rungs, headless, rates, *_ = pool.levels.distances(np.zeros((1, 5), dtype=int))
    assert np.sqrt(rungs[:4, 0]) == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert np.sqrt(rates[:3, 0]) == pytest.approx([0, 0.5, 1])
    assert headless[1, 0] == pytest.approx(1.0)


def test_a_search_with_any_kind_of_suggestion_tries_the_values_of_the_space_and_stops_by_itself() -> None:
    space = Space.of(num_workers=[0, 2, 4], batch=range(1, 4), amp=[False, True])
    sampler = GainSampler(space)
    study = optuna.create_study(direction="maximize", sampler=sampler)

    def objective(trial: optuna.Trial) -> float:
        workers, batch = trial.suggest_int("num_workers", 0, 4), trial.suggest_int("batch", 1, 3)
        return 10.0 + workers - abs(batch - 2) + trial.suggest_categorical("amp", [False, True])

    study.optimize(objective, n_trials=100, callbacks=[sampler.stop_callback])
    assert {trial.params["num_workers"] for trial in study.trials} <= {0, 2, 4}
    assert study.best_params == sampler.best(study) == {"num_workers": 4, "batch": 2, "amp": True}
    assert len(study.trials) < 100


def test_a_value_that_a_suggestion_does_not_allow_is_refused() -> None:
    space = Space.of(num_workers=[0, 2, 4])
    trial = optuna.create_study(direction="maximize", sampler=GainSampler(space)).ask()
    with pytest.raises(StudyError, match=r"num_workers=\d, outside IntDistribution\(high=9"):
        trial.suggest_int("num_workers", 7, 9)


@pytest.mark.parametrize("directions", [["maximize"], ["maximize", "minimize"]])
def test_an_objective_that_the_search_cannot_learn_from_is_refused(directions: list[str]) -> None:
    sampler = GainSampler(Space.of(num_workers=[0, 2, 4], batch=[1, 2]))
    study = optuna.create_study(directions=directions, sampler=sampler)  # pyright: ignore[reportArgumentType]
    with pytest.raises(StudyError, match=r"did not suggest batch.*suggest all its values|has 2 objectives"):
        study.optimize(lambda trial: trial.suggest_int("num_workers", 0, 4), n_trials=9)
    assert len(study.trials) == 1


def test_a_trial_that_ends_without_a_value_may_suggest_less() -> None:
    sampler = GainSampler(Space.of(num_workers=[0, 2, 4], batch=[1, 2]))
    study = optuna.create_study(direction="maximize", sampler=sampler)

    def objective(trial: optuna.Trial) -> float:
        trial.suggest_int("num_workers", 0, 4)
        raise optuna.TrialPruned

    study.optimize(objective, n_trials=2)
    assert len(study.trials) == 2


@pytest.mark.parametrize("given", [FloatDistribution(1e-5, 1e-1, log=True), "bf16", [], [None], 3, np.eye(2)])
def test_a_parameter_without_listed_values_is_refused(given: object) -> None:
    with pytest.raises(StudyError, match=r"(?s)lr=.* lists no values"):
        Space.of(lr=given)  # pyright: ignore[reportArgumentType]


def test_numbers_of_numpy_become_plain_numbers() -> None:
    space = Space.of(lr=np.geomspace(1e-5, 1e-1, 5), batch=np.array([1, 2]))
    assert {type(value) for parameter in space.parameters for value in parameter.values} == {float, int}


def test_a_ladder_that_is_given_as_a_range_stays_the_choice_that_older_studies_have() -> None:
    (ladder,) = Space.of(num_envs=range(8, 33, 8)).parameters
    assert distribution(ladder) == CategoricalDistribution((8, 16, 24, 32))
    with pytest.raises(StudyError, match="num_envs: 'many' is no number"):
        Space.of(num_envs=["many"])
