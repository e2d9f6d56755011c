"""The configs of a space, their places and their neighbours."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from tuner.errors import StudyError
from tuner.search.gain.levels import Levels
from tuner.search.gain.pool import Pool
from tuner.study.space import Condition, Config, Parameter, Space, config_digest

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


def test_a_space_that_is_too_large_is_refused() -> None:
    huge = Space(tuple(Parameter(name=f"p{number}", values=tuple(range(100))) for number in range(3)))
    with pytest.raises(StudyError, match=r"more than 100,000 configs.* search\.sampler: tpe"):
        Pool(huge)


def neighbours(**config: int | str) -> list[Config]:
    (place,) = POOL.places([config_digest(config)])
    return [POOL.configs[near] for near in POOL.neighbours(place)]


def test_neighbours_differ_in_one_parameter_by_one_step() -> None:
    near = neighbours(num_envs=256, agent_variant="hiutil", update_epochs=20)
    assert [config["num_envs"] for config in near[:2]] == [64, 1024]
    assert {"num_envs": 256, "agent_variant": "default"} in near
    assert [config["update_epochs"] for config in near if config.get("update_epochs") != 20 and len(config) == 3] == [
        30
    ]


def test_a_parameter_that_does_not_count_has_no_steps() -> None:
    near = neighbours(num_envs=64, agent_variant="default")
    assert len(near) == 2
    assert {"num_envs": 256, "agent_variant": "default"} in near


def test_what_the_space_does_not_hold_is_no_neighbour() -> None:
    pool = Pool(replace(SPACE, holds=lambda config: config["num_envs"] != 256))
    (place,) = pool.places([config_digest({"num_envs": 64, "agent_variant": "default"})])
    assert {pool.configs[near]["num_envs"] for near in pool.neighbours(place)} == {64}
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
