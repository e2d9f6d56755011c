from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.tools.racing import better_half, rounds


@given(configs=st.integers(2, 9), seeds=st.integers(1, 5), total_s=st.floats(1.0, 1e6))
def test_all_runs_together_take_the_given_time(configs: int, seeds: int, total_s: float) -> None:
    made = rounds(configs, seeds=seeds, total_s=total_s)
    assert sum(one.configs * seeds * one.seconds for one in made) == pytest.approx(total_s)


@given(configs=st.integers(3, 9), seeds=st.integers(1, 5))
def test_each_round_has_half_the_configs_twice_the_time_and_new_seeds(configs: int, seeds: int) -> None:
    made = rounds(configs, seeds=seeds, total_s=3600.0)
    assert made[-1].configs == 2
    used = [seed for one in made for seed in one.seeds]
    assert len(used) == len(set(used))
    for before, after in pairwise(made):
        assert after.configs == (before.configs + 1) // 2
        assert after.seconds == pytest.approx(2 * before.seconds)


def test_configs_without_a_score_leave_the_race() -> None:
    assert better_half([1.0, None, 3.0, 2.0]) == [2, 3]
    assert better_half([None, 5.0]) == [1]
    assert better_half([-1.0, -2.0, -3.0]) == [0, 1]
