"""The values of ranges: numbers as a person would write them."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.study.parameter import count_spaced, spaced_values

tenths = st.integers(-50, 50).map(lambda number: number / 10)
above = st.integers(1, 50).map(lambda number: number / 10)


def test_a_range_has_equal_steps() -> None:
    for first, last, step, made in [
        (1, 7, 3, (1, 4, 7)),
        (0, 8, 3, (0, 3, 6)),
        (0.1, 0.5, 0.1, (0.1, 0.2, 0.3, 0.4, 0.5)),
        (0, 1, 0.25, (0.0, 0.25, 0.5, 0.75, 1.0)),
        (-0.3, 0, 0.1, (-0.3, -0.2, -0.1, 0.0)),
    ]:
        found = spaced_values(first, last, step, log=False)
        assert (found, [type(one) for one in found]) == (made, [type(one) for one in made])


def test_a_logarithmic_range_has_equal_factors_and_ends_with_its_last_value() -> None:
    for first, last, step, made in [
        (8, 64, 2, (8, 16, 32, 64)),
        (8, 100, 2, (8, 16, 32, 64, 100)),
        (2, 10, 1.5, (2, 3, 4, 7, 10)),
        (1, 3, 1.2, (1, 2, 3)),
        (5, 5, 2, (5,)),
        (1e-5, 1e-2, 10, (1e-5, 1e-4, 1e-3, 1e-2)),
        (0.001, 0.01, 3, (0.001, 0.003, 0.009, 0.01)),
    ]:
        found = spaced_values(first, last, step, log=True)
        assert (found, [type(one) for one in found]) == (made, [type(one) for one in made])


@given(tenths, above, above)
def test_a_range_of_fractions_stays_inside_and_is_counted(first: float, length: float, step: float) -> None:
    last = round(first + length, 1)
    found = spaced_values(first, last, step, log=False)
    assert len(found) == count_spaced(first, last, step, log=False)
    assert (found[0], found[-1] <= last, last - found[-1] < step + 1e-9) == (first, True, True)
    assert all(later - earlier == pytest.approx(step) for earlier, later in pairwise(found))
    assert all(round(one, 1) == one for one in found)


@given(above, st.integers(11, 9999), st.integers(11, 90))
def test_a_logarithmic_range_grows_and_has_no_more_values_than_counted(first: float, ratio: int, step: int) -> None:
    last, factor = round(first * ratio / 10, 2), step / 10
    found = spaced_values(first, last, factor, log=True)
    assert (found[0], found[-1]) == (first, last)
    assert len(found) <= count_spaced(first, last, factor, log=True)
    assert all(1 < later / earlier <= factor * (1 + 1e-9) for earlier, later in pairwise(found))
