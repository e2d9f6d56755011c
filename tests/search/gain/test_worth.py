"""The expected gain of one more measurement."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tuner.search.gain.expected_gain import chance_below, expected_improvement, knowledge_gradient

MEANS = st.lists(st.floats(-50, 50), min_size=2, max_size=6)


@given(mean=st.floats(-10, 10), deviation=st.floats(0.1, 10), limit=st.floats(-10, 10))
def test_a_higher_limit_is_kept_more_surely(mean: float, deviation: float, limit: float) -> None:
    lower, higher = (float(chance_below(edge, np.array(mean), np.array(deviation))) for edge in (limit, limit + 1.0))
    assert 0.0 <= lower <= higher <= 1.0


def test_half_of_a_normal_variable_lies_below_its_mean() -> None:
    assert float(chance_below(3.0, np.array(3.0), np.array(2.0))) == 0.5


@given(mean=st.floats(-10, 10), deviation=st.floats(0.1, 10))
def test_expected_improvement_is_at_least_the_mean_and_at_least_0(mean: float, deviation: float) -> None:
    assert float(expected_improvement(np.array(mean), np.array(deviation))) >= max(mean, 0.0) - 1e-6


@given(MEANS)
def test_a_config_that_is_less_certain_is_worth_more(means: list[float]) -> None:
    mean = np.array([max(means), *means])
    sure, unsure = (knowledge_gradient(mean, np.full(len(mean), spread), 1.0, [0]) for spread in (0.5, 5.0))
    assert (unsure[1:] >= sure[1:] - 1e-9).all()
    assert (sure >= -1e-9).all()


def test_one_more_measurement_of_a_best_without_rivals_gains_nothing() -> None:
    gain = knowledge_gradient(np.array([60.0, 10.0]), np.array([1.0, 1.0]), 1.0, [0])
    assert gain[0] == 0.0
    assert gain[1] < 1e-6
