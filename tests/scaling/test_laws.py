"""The fitted laws find the serial part that made the rates, and say how uncertain the serial part is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.tools.scaling.laws import Quantity, difference, ratio, serial_part

COUNTS = (2, 4, 8)
shares = st.floats(0.0, 0.9)


@given(serial=shares)
def test_amdahls_law_gives_back_the_serial_part_that_made_the_rates(serial: float) -> None:
    rates = [(n, Quantity(100 / (serial + (1 - serial) / n), 1.0)) for n in COUNTS]
    fit = serial_part("strong", Quantity(100.0, 1.0), rates)
    assert fit.share == pytest.approx(serial, abs=1e-9)
    assert fit.misfit == pytest.approx(0.0, abs=1e-6)


@given(serial=shares)
def test_gustafsons_law_gives_back_the_serial_part_that_made_the_rates(serial: float) -> None:
    rates = [(n, Quantity(100 * (n - serial * (n - 1)), 1.0)) for n in COUNTS]
    assert serial_part("weak", Quantity(100.0, 1.0), rates).share == pytest.approx(serial, abs=1e-9)


def test_two_gpus_alone_give_the_metric_of_karp_and_flatt() -> None:
    speed_up = 1.78
    fit = serial_part("strong", Quantity(100.0, 0.0), [(2, Quantity(178.0, 1.0))])
    assert fit.share == pytest.approx((1 / speed_up - 1 / 2) / (1 - 1 / 2))
    assert fit.misfit is None


def test_the_error_holds_both_rates() -> None:
    exact = serial_part("weak", Quantity(100.0, 0.0), [(2, Quantity(190.0, 3.0))])
    assert exact.error == pytest.approx(0.03)
    both = serial_part("weak", Quantity(100.0, 2.0), [(2, Quantity(190.0, 3.0))])
    assert both.error == pytest.approx((0.03**2 + (0.02 * 1.9) ** 2) ** 0.5)


def test_points_that_no_law_fits_enlarge_the_error() -> None:
    rates = [(2, Quantity(195.0, 1.0)), (4, Quantity(250.0, 1.0)), (8, Quantity(600.0, 1.0))]
    fit = serial_part("weak", Quantity(100.0, 0.0), rates)
    assert fit.misfit is not None
    assert fit.misfit > 10
    assert fit.error is not None
    assert fit.error > 0.01


def test_unknown_errors_stay_unknown() -> None:
    assert serial_part("strong", Quantity(100.0), [(2, Quantity(180.0))]).error is None
    assert ratio(Quantity(2.0), Quantity(1.0, 0.1)) == Quantity(2.0)
    assert difference(Quantity(2.0, 0.3), Quantity(1.0, 0.4)) == Quantity(1.0, 0.5)
