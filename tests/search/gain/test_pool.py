"""The configs of a space, and the distances between them."""

import tracemalloc
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from tuner.errors import StudyError
from tuner.search.gain.pool import Levels, Pool
from tuner.study.space import Condition, Config, Parameter, Space

SPACE = Space(
    (
        Parameter(name="num_envs", values=(1024, 64, 256)),
        Parameter(name="agent_variant", values=("hiutil", "default")),
        Parameter(
            name="update_epochs",
            values=(20, 30, 40),
            conditions=(Condition(parameter="agent_variant", values=("hiutil",)),),
        ),
    )
)
POOL = Pool(SPACE)


def test_a_large_space_is_drawn_from_and_its_constraints_are_kept() -> None:
    huge = Space(
        tuple(Parameter(name=f"p{number}", values=tuple(range(100))) for number in range(4)),
        holds=lambda config: sum(map(float, config.values())) < 150.0,
    )
    pool = Pool(huge)
    assert pool.is_part
    assert all(map(huge.holds, pool.configs))
    best: Config = {"p0": 14, "p1": 14, "p2": 14, "p3": 14}
    beside = pool.extended([best], [best])
    place = beside.find(best)
    assert place is not None
    assert len(beside.neighbours(place)) == 8
    assert np.array_equal(beside.codes, pool.levels.codes(beside.configs))
    assert len(beside.heights) == len(beside.configs)
    assert pool.configs[:100] == list(islice(huge.random_configs(), 100))


def test_a_large_space_of_which_no_config_keeps_the_constraints_is_refused() -> None:
    huge = Space(
        tuple(Parameter(name=f"p{number}", values=tuple(range(2500))) for number in range(2)), holds=lambda _: False
    )
    with pytest.raises(StudyError, match="keeps the constraints"):
        Pool(huge)


def test_a_pool_has_only_what_the_space_holds() -> None:
    pool = Pool(replace(SPACE, holds=lambda config: config["num_envs"] != 256))
    assert {config["num_envs"] for config in pool.configs} == {64, 1024}
    assert len(pool.configs) == len(pool.heights) == 8


def test_doublings_are_equally_far_apart_whatever_their_order() -> None:
    heights = {config["num_envs"]: height for config, height in zip(POOL.configs, POOL.heights, strict=True)}
    assert heights == {64: 0.0, 256: pytest.approx(0.5), 1024: pytest.approx(1.0)}


def test_words_are_one_apart_and_what_does_not_count_lies_half_way() -> None:
    codes = np.array([[min(code, len(one.values)) for one in SPACE.parameters] for code in range(4)])
    _, words, numbers = POOL.levels.distances(codes)
    assert words[0, 1] == pytest.approx(1.0)
    assert np.sqrt(numbers[0, 2]) == pytest.approx(1.0)
    assert np.sqrt(numbers[:3, 3]) == pytest.approx([0.5, 0.0, 0.5])


@pytest.mark.parametrize("values", [tuple(range(1, 50_001)), tuple(f"word{number}" for number in range(50_000))])
def test_many_values_of_a_parameter_take_little_memory(values: tuple[int | str, ...]) -> None:
    space = Space((Parameter(name="num_envs", values=values[:1]), Parameter(name="lr", values=values)))
    tracemalloc.start()
    levels = Levels(space)
    codes = levels.codes([{"num_envs": values[0], "lr": values[place]} for place in (0, -1)])
    apart = levels.distances(codes)[1][0, 1]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert apart == pytest.approx(1.0)
    assert peak < 50e6
