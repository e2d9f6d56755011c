"""The configs that a recording measures, and their order."""

from functools import cache

from hypothesis import given
from hypothesis import strategies as st
from tests_space import USUAL

from tuner.search.samplers import ordered_by_session, space_filling
from tuner.study.space import Config, Parameter, Space, Value

LADDER_ONLY = Space((Parameter(name="num_envs", values=tuple(range(1, 10))),))
counts, seeds = st.integers(1, 60), st.integers(0, 3)


def by_rung(config: Config) -> str:
    return f"rung {config['num_envs']}"


@cache
def whole(seed: int) -> list[Config]:
    """Return the largest sample, which has all configs of the space and takes longest to choose."""
    return space_filling(USUAL, 120, seed)


def distinct(configs: list[Config]) -> set[tuple[tuple[str, Value], ...]]:
    return {tuple(config.items()) for config in configs}


@given(count=counts, seed=seeds)
def test_a_sample_holds_so_many_configs_and_begins_every_larger_one(count: int, seed: int) -> None:
    assert space_filling(USUAL, count, seed) == whole(seed)[:count]


@given(seed=seeds)
def test_a_sample_holds_distinct_configs_of_the_space(seed: int) -> None:
    configs = whole(seed)
    assert len(distinct(configs)) == len(configs) == 120
    assert all(config in USUAL for config in configs)


@given(seed=seeds)
def test_every_value_occurs_as_soon_as_there_is_room(seed: int) -> None:
    occur = {item for config in space_filling(USUAL, 4, seed) for item in config.items()}
    assert occur == {(parameter.name, value) for parameter in USUAL.parameters for value in parameter.values}


def test_more_than_there_are_is_all_of_them() -> None:
    assert distinct(space_filling(USUAL, 1000)) == distinct(list(USUAL.configs()))


def test_another_seed_is_another_sample() -> None:
    assert distinct(space_filling(USUAL, 6, 0)) != distinct(space_filling(USUAL, 6, 1))


@given(seed=seeds)
def test_once_all_values_have_occurred_the_farthest_comes_next(seed: int) -> None:
    two = Space((Parameter(name="a", values=(1, 2, 3, 4, 5)), Parameter(name="b", values=("x", "y"))))
    *first, last = space_filling(two, 6, seed)

    def nearest(config: Config) -> float:
        return min(
            abs(int(config["a"]) - int(one["a"])) / 4 + (config["b"] != one["b"]) for one in first if one != config
        )

    assert nearest(last) == max(nearest(config) for config in two.configs() if config not in first)


@given(order=st.permutations(list(USUAL.configs())))
def test_sessions_follow_each_other_from_the_smallest_rung_upwards(order: list[Config]) -> None:
    configs = ordered_by_session(order, by_rung)
    assert sorted(map(str, configs)) == sorted(map(str, order))
    memory = [(int(config["num_envs"]), int(config.get("batch_size", 0))) for config in configs]
    assert memory == sorted(memory)


def test_configs_without_a_session_keep_their_order_after_the_others() -> None:
    configs = list(LADDER_ONLY.configs())[::-1]
    assert ordered_by_session(configs, lambda _: None) == configs
    odd = ordered_by_session(configs, lambda config: by_rung(config) if int(config["num_envs"]) % 2 else None)
    assert [config["num_envs"] for config in odd] == [1, 3, 5, 7, 9, 8, 6, 4, 2]
