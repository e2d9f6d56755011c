import random
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.probe.steady import Block, error_of_mean, known_well_enough, standard_error

values = st.lists(st.floats(0, 100), min_size=3, max_size=30)


def blocks(numbers: list[float], seconds: float = 3.0) -> list[Block]:
    return [Block(seconds, number) for number in numbers]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_too_few_blocks_say_nothing(count: int) -> None:
    assert standard_error(blocks([50.0] * count)) is None


@given(st.floats(0, 100), st.integers(3, 20))
def test_equal_blocks_have_no_error(value: float, count: int) -> None:
    assert standard_error(blocks([value] * count)) == pytest.approx(0.0, abs=1e-9)


@given(values, st.floats(0.5, 20), st.floats(-50, 50))
def test_the_error_scales_with_the_values_and_ignores_where_they_lie(
    numbers: list[float], factor: float, shift: float
) -> None:
    plain = standard_error(blocks(numbers))
    moved = standard_error(blocks([factor * number + shift for number in numbers]))
    assert plain is not None
    assert moved == pytest.approx(factor * plain, rel=1e-3, abs=1e-6)


def correlated(source: random.Random, count: int, correlation: float) -> list[float]:
    numbers, last = [], source.gauss(0, 1)
    for _ in range(count):
        last = correlation * last + source.gauss(0, (1 - correlation**2) ** 0.5)
        numbers.append(last)
    return numbers


@pytest.mark.parametrize("correlation", [0.0, 0.4])
@pytest.mark.parametrize("count", [4, 7, 12, 24])
def test_the_error_is_what_repeated_windows_really_spread(correlation: float, count: int) -> None:
    source = random.Random(1)
    windows = [correlated(source, count, correlation) for _ in range(3000)]
    truth = stdev(fmean(window) for window in windows)
    claimed = fmean(standard_error(blocks(window)) or 0.0 for window in windows)
    assert 0.7 * truth < claimed < 1.4 * truth


def test_more_blocks_narrow_the_error() -> None:
    source = random.Random(2)
    errors = [standard_error(blocks(correlated(source, count, 0.2))) or 0.0 for count in (5, 20, 80, 320)]
    assert errors == sorted(errors, reverse=True)


def test_a_long_block_weighs_more() -> None:
    even = standard_error([Block(1.0, 10.0), Block(1.0, 10.0), Block(1.0, 40.0)])
    heavy = standard_error([Block(10.0, 10.0), Block(10.0, 10.0), Block(1.0, 40.0)])
    assert even is not None
    assert heavy is not None
    assert heavy < even


def test_a_small_error_or_a_clear_loss_is_enough() -> None:
    assert known_well_enough(50.0, 0.9, target=1.0, best=None)
    assert not known_well_enough(50.0, 1.1, target=1.0, best=None)
    assert known_well_enough(50.0, 5.0, target=1.0, best=70.0)
    assert not known_well_enough(50.0, 5.0, target=1.0, best=60.0)
    assert not known_well_enough(90.0, 5.0, target=1.0, best=60.0)
    assert not known_well_enough(50.0, None, target=1.0, best=99.0)


@given(st.integers(1, 9), st.floats(0.1, 10))
def test_readings_that_agree_are_known_better_the_more_there_are(count: int, error: float) -> None:
    assert error_of_mean([60.0] * count, [error] * count) == pytest.approx(error / count**0.5)


@given(st.lists(st.floats(0, 100), min_size=2, max_size=9))
def test_readings_that_differ_by_more_than_their_errors_are_known_no_better_than_they_scatter(
    numbers: list[float],
) -> None:
    scatter = stdev(numbers) / len(numbers) ** 0.5
    assert error_of_mean(numbers, [0.0] * len(numbers)) == pytest.approx(scatter)
    assert error_of_mean(numbers, [None] * len(numbers)) == pytest.approx(scatter)


def test_a_reading_alone_is_known_as_well_as_it_says() -> None:
    assert error_of_mean([60.0], [0.5]) == 0.5
    assert error_of_mean([60.0], [None]) is None
    assert error_of_mean([], []) is None
