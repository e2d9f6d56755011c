import random
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.probe.quantities import FULL_PCT, SM_VARIATION, Block, error_of_mean, known_well_enough, standard_error
from tuner.study import ProbeSpec

values = st.lists(st.floats(0, 100), min_size=2, max_size=30)


def blocks(numbers: list[float], seconds: float = 3.0) -> list[Block]:
    return [Block(seconds, number) for number in numbers]


def test_no_blocks_say_nothing() -> None:
    assert standard_error([]) is None


def test_a_block_alone_is_known_as_well_as_iterations_usually_scatter() -> None:
    for value, error in [(20.0, 3.0), (50.0, 6.0), (90.0, 1.2), (100.0, 0.0)]:
        assert standard_error(blocks([value]), largest=FULL_PCT) == pytest.approx(error)


@given(st.floats(0.1, 100))
def test_a_block_alone_is_known_worse_than_two_that_agree(value: float) -> None:
    alone, two = (standard_error(blocks([value] * count)) for count in (1, 2))
    assert alone is not None
    assert two is not None
    assert alone > 2 * two


@given(st.floats(0.1, 100), st.integers(2, 20))
def test_blocks_that_agree_are_known_the_better_the_more_there_are(value: float, count: int) -> None:
    few, more = (standard_error(blocks([value] * number)) for number in (count, count + 1))
    assert few is not None
    assert more is not None
    assert 0.0 < more < few < 0.02 * value


@given(st.floats(90, 99.9), st.floats(0.01, 0.9))
def test_the_less_of_a_share_is_idle_the_better_blocks_that_agree_are_known(busy: float, part: float) -> None:
    busier = FULL_PCT - part * (FULL_PCT - busy)
    errors = [standard_error(blocks([share] * 4), largest=FULL_PCT) or 0.0 for share in (busy, busier)]
    assert errors[1] == pytest.approx(part * errors[0], rel=1e-3)


def test_two_equal_iterations_of_a_half_idle_device_are_not_precise_enough() -> None:
    errors = [standard_error(blocks([pct, pct]), largest=FULL_PCT) or 0.0 for pct in (50.0, 95.0)]
    assert errors[0] > ProbeSpec.target_error_pct > errors[1]


@given(
    st.lists(st.floats(75, 100), min_size=2, max_size=5)
)  # with more values, the estimated correlation may count for more
def test_what_is_idle_never_widens_the_error_of_a_busy_device(numbers: list[float]) -> None:
    plain, share = standard_error(blocks(numbers)), standard_error(blocks(numbers), largest=FULL_PCT)
    assert plain is not None
    assert share is not None
    assert share <= plain * (1 + 1e-9)


def test_nothing_but_zeros_is_zero() -> None:
    assert standard_error(blocks([0.0] * 4)) == 0.0


@given(values, st.floats(0.5, 20))
def test_the_error_scales_with_the_values(numbers: list[float], factor: float) -> None:
    plain = standard_error(blocks(numbers))
    scaled = standard_error(blocks([factor * number for number in numbers]))
    assert plain is not None
    assert scaled == pytest.approx(factor * plain, rel=1e-3, abs=1e-6)


MEAN = 80.0


def correlated(source: random.Random, count: int, correlation: float, spread: float = 1.2) -> list[float]:
    numbers, last = [], source.gauss(0, spread)
    for _ in range(count):
        last = correlation * last + source.gauss(0, spread * (1 - correlation**2) ** 0.5)
        numbers.append(MEAN + last)
    return numbers


@pytest.mark.parametrize("correlation", [0.0, 0.4])
@pytest.mark.parametrize("count", [4, 7, 12, 24])
@pytest.mark.parametrize("spread", [0.7, 1.2, 4.0])
def test_the_error_is_what_repeated_windows_really_spread(correlation: float, count: int, spread: float) -> None:
    source = random.Random(1)
    windows = [correlated(source, count, correlation, spread) for _ in range(600)]
    truth = stdev(fmean(window) for window in windows)
    claimed = fmean(standard_error(blocks(window)) or 0.0 for window in windows)
    assert 0.65 * truth < claimed < 2.2 * truth


@pytest.mark.parametrize("count", [3, 4, 6])
def test_few_windows_lie_further_off_than_three_errors(count: int) -> None:
    source = random.Random(3)
    windows = [correlated(source, count, 0.3) for _ in range(3000)]
    off = [abs(fmean(window) - MEAN) / (standard_error(blocks(window)) or 0.0) for window in windows]
    assert sum(one > 3.0 for one in off) < 0.02 * len(off)


@pytest.mark.parametrize("count", [3, 4, 7])
@pytest.mark.parametrize(("mean", "spread"), [(21.6, 0.9), (85.9, 1.2)])
def test_nine_of_ten_windows_of_sm_hold_the_mean_of_the_whole_run(mean: float, spread: float, count: int) -> None:
    """With the usual numbers of utilisation, 75 to 81 % of those at 21.6 % do."""
    held: list[bool] = []
    for seed in range(100):
        run = [number - MEAN + mean for number in correlated(random.Random(seed), 60, 0.55, spread)]
        for begin in range(0, 60 - count, count):
            window = run[begin : begin + count]
            error = standard_error(blocks(window), largest=FULL_PCT, variation=SM_VARIATION) or 0.0
            held.append(abs(fmean(window) - fmean(run)) <= 2 * error)
    assert fmean(held) > 0.9


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


def test_a_single_measurement_has_its_own_error() -> None:
    assert error_of_mean([60.0], [0.5]) == 0.5
    assert error_of_mean([60.0], [None]) is None
    assert error_of_mean([], []) is None
