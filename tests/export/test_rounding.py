import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.export.tables import rounded
from tuner.export.wording import score_text, with_error

NAMES = st.sampled_from(["total_s", "samples_per_s", "min_avg_util", "max_power", "max_mem", "energy_j", "reward"])
NUMBERS = st.floats(min_value=-1e9, max_value=1e9)


def test_decimals_follow_the_unit() -> None:
    for name, value, shown in [
        ("avg_util", 61.2345, "61.23"),
        ("samples_per_s", 193.2149, "193.21"),
        ("iterations_per_s", 0.011734, "0.0117"),
        ("samples_per_s", 0.11249, "0.112"),
        ("iterations_per_s_se", 0.000412, "0.000412"),
        ("elapsed_s", 61.257, "61.26"),
        ("max_power", 312.345, "312.3"),
        ("max_mem", 6097.0, "6097"),
        ("energy_j", 6300.7, "6301"),
        ("reward", 0.000123456789, "0.000123457"),
    ]:
        assert str(rounded(name, value)) == shown


@given(NAMES, NUMBERS)
def test_rounding_twice_changes_nothing_and_once_little(name: str, value: float) -> None:
    once = rounded(name, value)
    assert rounded(name, once) == once
    assert once == pytest.approx(value, abs=0.5, rel=1e-5)


@given(NAMES, st.none() | st.text() | st.integers() | st.booleans())
def test_what_is_no_float_stays(name: str, value: object) -> None:
    assert rounded(name, value) is value


@given(NAMES, st.sampled_from([math.nan, math.inf, -math.inf]))
def test_what_is_not_finite_is_unknown(name: str, value: float) -> None:
    assert rounded(name, value) is None


def test_a_value_has_digits_as_far_as_its_error() -> None:
    for value, error, shown in [
        (94.6, 0.03, "94.6 ± 0.0"),
        (1234.5, 0.3, "1,234.5 ± 0.3"),
        (1234.5, 0.5, "1,234.5 ± 0.5"),
        (1234.5, 0.03, "1,234.50 ± 0.03"),
        (1234.4, 0.6, "1,234 ± 1"),
        (1234.5, None, "1,234"),
        (3.1234, 0.0567, "3.1 ± 0.1"),
        (3.1234, 0.0123, "3.12 ± 0.01"),
        (0.4312, 0.0021, "0.431 ± 0.002"),
        (0.4312, None, "0.4"),
        (12.3, 15.4, "12.3 (at most 43.1)"),
        (-0.5, 0.7, "-0.5 ± 0.7"),
    ]:
        assert with_error(value, error) == shown


@pytest.mark.parametrize(
    ("error", "shown"), [(0.004, "0.3000 ± 0.0040"), (150.0, "0 ± 150"), (3e-17, "0.3"), (0.0, "0.3")]
)
def test_a_score_has_the_digits_of_its_error_unless_that_is_rounding(error: float, shown: str) -> None:
    assert score_text(0.3, error) == shown
