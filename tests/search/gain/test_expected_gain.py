"""What a series of further probes is expected to gain."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from tuner.search.gain.expected_gain import (
    RATIO_OFFSET,
    Candidates,
    Series,
    draw_shortfall,
    expected_gain,
    knowledge_gradient,
    most_rewarding,
    realised_ratio,
)


def candidates(
    mean: list[float],
    deviation: list[float],
    *,
    error: float = 0.5,
    runs: float = 1.0,
    ceiling: float = np.inf,
    count: int = 1,
) -> Candidates:
    """Return independent candidates, of which the first `count` have been measured."""
    known = np.arange(len(mean)) < count
    return Candidates(
        mean=np.array(mean),
        covariance=np.diag(np.square(deviation)),
        chance_to_run=np.where(known, 1.0, runs),
        is_measured=known,
        errors=np.full(len(mean), error),
        degrees_of_freedom=4.0,
        ceiling=ceiling,
        scale=100.0,
    )


def measured(*members: int, probes_each: int = 1) -> Series:
    return Series(members=np.array(members), probes_each=probes_each)


def test_to_measure_what_is_known_exactly_gains_nothing() -> None:
    assert expected_gain(candidates([90.0, 89.0], [0.0, 0.0]), measured(1)) == pytest.approx(0.0, abs=1e-9)


def test_a_rival_as_good_as_the_best_gains_its_expected_excess() -> None:
    """Student's t with 4 degrees of freedom has a mean absolute value of 1: half of it lies above 0."""
    gain = expected_gain(candidates([90.0, 90.0], [0.0, 2.0], error=1e-6), measured(1))
    assert gain == pytest.approx(1.0, rel=0.1)


@given(ahead=some.floats(-1.0, 1.0), deviation=some.floats(0.1, 0.3))
def test_a_choice_between_ties_gains_almost_nothing(ahead: float, deviation: float) -> None:
    """All lie within 1 % of the best, and the doubt of their difference, too."""
    tied = candidates([90.0, 90.0 - abs(ahead)], [deviation, deviation], count=2)
    assert 0.0 <= expected_gain(tied, measured(1, probes_each=4)) < 0.02


def test_a_new_config_gains_more_than_another_reading_of_a_tie() -> None:
    tied, new = (candidates([90.0, 90.0], [0.3, 0.3], count=count) for count in (2, 1))
    again, first = (expected_gain(known, measured(1, probes_each=4)) for known in (tied, new))
    assert first > 3.0 * again


def test_one_measurement_of_a_tie_gains_nothing() -> None:
    mean, deviation = np.array([90.0, 89.9]), np.array([0.2, 0.2])
    tied, apart = (knowledge_gradient(mean, deviation, 0.5, [0, 1], margin=margin)[1] for margin in (0.9, 0.0))
    assert tied == pytest.approx(0.0, abs=1e-6)
    assert apart > 1e-3


def test_measured_rivals_that_may_be_far_apart_gain_from_another_reading() -> None:
    assert expected_gain(candidates([90.0, 90.0], [3.0, 3.0], count=2), measured(0, 1)) > 0.5


def test_a_config_that_runs_with_half_the_probability_gains_half() -> None:
    known = [candidates([90.0, 90.0], [0.0, 2.0], runs=runs) for runs in (1.0, 0.5)]
    sure, doubtful = (expected_gain(each, measured(1)) for each in known)
    assert doubtful == pytest.approx(sure / 2.0, rel=0.4)


def test_no_gain_goes_beyond_the_ceiling() -> None:
    gain = expected_gain(candidates([98.0, 98.0], [0.0, 50.0], ceiling=100.0), measured(1))
    assert 0.5 < gain < 2.0


@given(
    mean=some.lists(some.floats(80.0, 90.0), min_size=2, max_size=6),
    deviation=some.floats(0.1, 5.0),
    error=some.floats(0.1, 5.0),
)
def test_exacter_measurements_gain_no_less(mean: list[float], deviation: float, error: float) -> None:
    of_all = candidates(mean, [0.1] + [deviation] * (len(mean) - 1), error=error)
    last = len(mean) - 1
    assert expected_gain(of_all, measured(last, probes_each=4)) >= expected_gain(of_all, measured(last)) - 1e-9 >= -1e-6


@given(some.integers(1, 100))
def test_series_begin_with_the_most_promising_and_the_longest_has_all(count: int) -> None:
    order, asked = np.arange(count)[::-1], list[Series]()

    def takes_s(probes: Series) -> float:
        asked.append(probes)
        return 1.0

    # a training of 0 s gains nothing, so no series pays and all are looked at
    most_rewarding(candidates([90.0] * count, [1.0] * count), order, 0.0, takes_s, 1.0)
    assert all((one.members == order[: len(one.members)]).all() for one in asked)
    assert max(len(one.members) for one in asked) == min(count, 64)


@given(
    mean=some.lists(some.floats(80.0, 90.0), min_size=2, max_size=6),
    deviation=some.floats(0.1, 5.0),
    runs=some.floats(0.0, 1.0),
)
def test_the_expected_loss_and_the_bound_are_finite_and_ordered(
    mean: list[float], deviation: float, runs: float
) -> None:
    lost, bound = draw_shortfall(candidates(mean, [0.1] + [deviation] * (len(mean) - 1), runs=runs))
    assert 0.0 <= lost < np.inf
    assert 0.0 <= bound < np.inf


def test_gains_that_were_expected_and_never_came_are_believed_no_more() -> None:
    expected = np.full(8, 0.02)
    assert realised_ratio(expected, expected, RATIO_OFFSET) == pytest.approx(1.0)
    assert realised_ratio(expected, np.zeros(8), RATIO_OFFSET) < 0.05
    assert realised_ratio(np.zeros(0), np.zeros(0), RATIO_OFFSET) == pytest.approx(1.0)
    assert realised_ratio(
        np.concatenate([expected, expected]), np.append(np.zeros(8), expected), RATIO_OFFSET
    ) == pytest.approx(1.0)
