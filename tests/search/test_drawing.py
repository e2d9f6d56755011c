"""Seeds, TPE and random draws in an in-memory study: the configs, their order, and the end of the search."""

from collections.abc import Callable, Iterator
from typing import Literal

import optuna
import pytest
from optuna.trial import TrialState, create_trial
from tests_search import Searched, given
from tests_space import USUAL

from tuner.records.schema import MEMORY, RETRY
from tuner.search.frontier import Frontier
from tuner.search.strategies import by_drawing
from tuner.search.trials import distribution
from tuner.study.space import LADDER, PATIENCE, Config, Parameter, Space, config_digest
from tuner.study.spec import SearchSpec

SPACE = Space((Parameter(name=LADDER, values=(8, 32, 64)), *USUAL.parameters[1:]))
"""The usual space with one rung less, because a search of all its configs by TPE takes long."""
LAUNCHES = 45
"""The different launches of the space. Its 90 configs are 45 pairs that differ only in the pruner's patience."""


class Search(Searched):
    """A study that is searched by seeds and draws."""

    def __init__(
        self, space: Space = SPACE, *, seeds: int = 2, seed: int = 0, kind: Literal["tpe", "random"] = "tpe"
    ) -> None:
        self.spec = SearchSpec(seeds_per_variant=seeds, seed=seed, sampler=kind)
        super().__init__(space, by_drawing(space, self.spec))

    def resume(self) -> None:
        """Continue with new choosers, as a new process would."""
        self.strategy = by_drawing(self.space, self.spec, resumed_at=len(self.study.trials))

    def rest(self, objective: Callable[[Config], float | None], most: int = 1000) -> Iterator[Config]:
        """Probe at most so many configs, until the search ends. An objective of None stands for out of memory."""
        for _ in range(most):
            begun = self.begin()
            if begun is None:
                return
            trial, config = begun
            yield config
            value = objective(config)
            if value is None:
                trial.set_constraint(MEMORY, 1.0)
            self.study.tell(trial, value, state=TrialState.PRUNED if value is None else TrialState.COMPLETE)


def busy(config: Config) -> float:
    return float(config["num_envs"]) + 5 * (config["agent_variant"] == "hiutil") + float(config["num_workers"])


def launch(config: Config) -> str:
    return config_digest({name: value for name, value in config.items() if name != PATIENCE})


def test_seeds_come_first_and_in_order() -> None:
    seeds = SPACE.start_configs(3)
    assert list(Search(seeds=3).rest(busy, len(seeds))) == seeds


@pytest.mark.parametrize("kind", ["tpe", "random"])
def test_everything_is_probed_once_and_then_it_ends(kind: Literal["tpe", "random"]) -> None:
    search = Search(kind=kind)
    asked = list(search.rest(busy))
    assert all(config in SPACE for config in asked)
    assert len({launch(config) for config in asked}) == len(asked) == LAUNCHES
    assert search.ended


def test_the_best_is_found_before_most_is_probed() -> None:
    best = max(map(busy, SPACE.configs()))
    assert best in map(busy, Search().rest(busy, LAUNCHES // 2))


def test_configs_that_differ_in_patience_alone_are_one_probe() -> None:
    space = Space((Parameter(name="num_envs", values=(8, 16)), Parameter(name=PATIENCE, values=(2, 3, 4))))
    asked = list(Search(space).rest(lambda config: 1.0))
    assert sorted(config["num_envs"] for config in asked) == [8, 16]
    assert all(PATIENCE in config for config in asked)


def test_conditional_parameters_are_stored_only_where_they_count() -> None:
    search = Search()
    asked = list(search.rest(busy, 30))
    assert [trial.params for trial in search.study.trials] == asked
    assert {config.get("batch_size") for config in asked if config["agent_variant"] == "default"} == {None}
    assert None not in {config.get("prefetch_factor") for config in asked if config["num_workers"] != 0}


def test_no_config_beyond_a_known_end_of_memory_is_asked_for() -> None:
    search = Search()
    asked = search.rest(lambda config: None if int(config["num_envs"]) >= 32 else busy(config))
    before = Frontier()
    failures = 0
    for config in asked:
        assert before.exceeded_failure(config) is None
        failures += int(config["num_envs"]) >= 32
        before = search.history.frontier
    assert 1 <= failures <= 2 * 3
    assert search.ended
    assert {launch(trial.params) for trial in search.study.get_trials(states=(TrialState.COMPLETE,))} == {
        launch(config) for config in SPACE.configs() if int(config["num_envs"]) < 32
    }


def test_a_retry_comes_next_and_once() -> None:
    search = Search(kind="random")
    list(search.rest(busy, 5))
    trial, config = search.ask()
    trial.set_user_attr(RETRY, True)
    search.study.tell(trial, state=TrialState.FAIL)
    again, same = search.ask()
    assert same == config
    _, other = search.ask()
    assert other != config
    search.study.tell(again, state=TrialState.FAIL)
    assert launch(config) not in {launch(config) for config in search.rest(busy)}


def test_a_retry_that_was_asked_with_another_patience_is_not_due() -> None:
    search = Search()
    trial, config = search.ask()
    trial.set_user_attr(RETRY, True)
    search.study.tell(trial, state=TrialState.FAIL)
    other = given(search.study, SPACE, {**config, PATIENCE: 5 - int(config[PATIENCE])})  # patience is 2 or 3
    search.study.tell(other, 50.0)
    assert launch(search.ask()[1]) != launch(config)


def test_a_retry_that_is_due_keeps_a_search_from_its_end() -> None:
    search = Search(Space((Parameter(name="num_envs", values=(8,)),)))
    trial, config = search.ask()
    assert search.ended
    trial.set_user_attr(RETRY, True)
    search.study.tell(trial, state=TrialState.FAIL)
    assert list(search.rest(lambda config: 1.0)) == [config]
    assert search.ended


@pytest.mark.parametrize(
    "params", [{}, {"num_envs": 64}, {"num_envs": 64, "agent_variant": "default", "num_workers": 0}]
)
def test_a_trial_dropped_before_its_config_was_whole_does_not_count(params: Config) -> None:
    search = Search(kind="random")
    kinds = {parameter.name: distribution(parameter) for parameter in SPACE.parameters if parameter.name in params}
    dropped = create_trial(state=TrialState.FAIL, params=params, distributions=kinds, user_attrs={RETRY: True})
    search.study.add_trial(dropped)
    asked = list(search.rest(busy))
    assert asked[:4] == SPACE.start_configs(2)
    assert len({launch(config) for config in asked}) == len(asked) == LAUNCHES


def test_a_failure_without_a_retry_is_left_alone() -> None:
    search = Search(kind="random")
    trial, config = search.ask()
    search.study.tell(trial, state=TrialState.FAIL)
    assert launch(config) not in {launch(other) for other in search.rest(busy)}


@pytest.mark.parametrize("kind", ["tpe", "random"])
def test_a_resumed_search_goes_on_where_it_was(kind: Literal["tpe", "random"]) -> None:
    search = Search(kind=kind)
    asked = list(search.rest(busy, 2))
    while not search.ended:
        search.resume()
        asked += search.rest(busy, 20)
    assert asked[:4] == SPACE.start_configs(2)
    assert len({launch(config) for config in asked}) == len(asked) == LAUNCHES


def test_the_same_seed_gives_the_same_search() -> None:
    first, again, other = (list(Search(seed=seed).rest(busy, 20)) for seed in (1, 1, 2))
    assert first == again != other


def test_a_resumed_search_draws_other_numbers() -> None:
    fresh, resumed = (
        by_drawing(SPACE, SearchSpec(seeds_per_variant=1, sampler="random"), resumed_at=count) for count in (0, 8)
    )
    draws: list[list[Config]] = []
    for strategy in (fresh, resumed):
        search = Search(seeds=1)
        search.strategy = strategy
        draws.append(list(search.rest(busy, 12))[2:])
    assert draws[0] != draws[1]


def test_a_range_is_searched_as_integers() -> None:
    space = Space(
        (
            Parameter(name="num_envs", values=(8, 16)),
            Parameter(name="depth", values=(1, 4, 7), is_range=True),
            Parameter(name="width", values=(5,), is_range=True),
        )
    )
    search = Search(space)
    asked = list(search.rest(lambda config: float(config["depth"])))
    assert len(asked) == 6
    assert all(config in space for config in asked)
    assert search.study.trials[0].distributions["depth"] == optuna.distributions.IntDistribution(1, 7, step=3)


@pytest.mark.parametrize("kind", ["tpe", "random"])
def test_everything_is_probed_once_with_several_objectives_too(kind: Literal["tpe", "random"]) -> None:
    search = Search(kind=kind)
    search.study = optuna.create_study(directions=["maximize", "maximize"])
    asked: list[Config] = []
    while begun := search.begin():
        trial, config = begun
        asked.append(config)
        does_not_fit, refused = config["num_envs"] == 64, len(asked) % 7 == 0
        if does_not_fit:
            trial.set_constraint(MEMORY, 1.0)
        values = None if does_not_fit or refused else [busy(config), -busy(config)]
        search.study.tell(trial, values, state=TrialState.PRUNED if values is None else TrialState.COMPLETE)
    assert len({launch(config) for config in asked}) == len(asked)
    assert {config["num_envs"] for config in asked} == {8, 32, 64}
    assert len(asked) > 2 * LAUNCHES // 3
