"""When a config counts as slower, and what such a test sees."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.probe import Quantity
from tuner.tools.verifying import FALSE_ALARM, Slowdown, scatter

SHARES = st.floats(0.0, 0.02)


def runs(count: int, spread: float, speed: float = 100.0, *, seed: int = 0) -> list[Quantity]:
    rng = random.Random(seed)
    return [Quantity(rng.gauss(speed, spread * speed), 0.1) for _ in range(count)]


def compared(now: list[Quantity], then: Quantity, readings: int = 1) -> Slowdown:
    return Slowdown.of(now, then, readings, scatter([now]))


def test_a_clear_slowdown_is_one_and_a_small_one_is_allowed() -> None:
    slower = compared(runs(6, 0.001, 97.0), Quantity(100.0, 0.1))
    assert slower.ratio == pytest.approx(0.97, abs=0.002)
    assert slower.is_below(0.99)
    assert not slower.is_below(0.95)
    assert not compared(runs(3, 0.001, 99.2), Quantity(100.0, 0.1)).is_below(0.99)
    assert not compared(runs(3, 0.001, 120.0), Quantity(100.0, 0.1)).is_below(0.99)


def test_waits_for_a_processor_explain_a_slowdown() -> None:
    slower = compared(runs(3, 0.001, 90.0), Quantity(100.0, 0.1))
    assert slower.is_below(0.99)
    assert not slower.is_below(0.99, delayed_share=0.1)
    assert slower.is_below(0.99, delayed_share=0.02)


def test_one_reading_of_the_study_is_taken_to_scatter_as_runs_of_now_do() -> None:
    now = runs(6, 0.01)
    once, often = compared(now, Quantity(100.0, 0.01)), compared(now, Quantity(100.0, 0.01), readings=100)
    assert once.error > 2 * often.error
    assert once.detectable > often.detectable


def test_runs_that_are_equal_by_chance_still_have_an_error() -> None:
    assert compared([Quantity(100.0)] * 4, Quantity(100.0), readings=10_000).error == pytest.approx(0.0015, rel=0.01)


@given(SHARES, st.integers(2, 8), st.integers(0, 10_000))
def test_power_grows_with_the_slowdown_and_agrees_with_what_is_seen(spread: float, count: int, seed: int) -> None:
    slowdown = compared(runs(count, spread, seed=seed), Quantity(100.0, 0.1))
    chances = [slowdown.power(slower, 0.99) for slower in (0.0, 0.03, 0.05, 0.1)]
    assert chances == sorted(chances)
    assert chances[0] <= FALSE_ALARM
    assert slowdown.power(0.01 + slowdown.detectable, 0.99) == pytest.approx(0.9)


@pytest.mark.parametrize("spread", [0.002, 0.01, 0.02])
def test_equal_speeds_hardly_ever_alarm(spread: float) -> None:
    alarms = 0
    for seed in range(400):
        then, *now = runs(5, spread, seed=seed)
        alarms += compared(now, then).is_below(1.0)
    assert alarms <= 400 * 3 * FALSE_ALARM


def test_more_runs_are_not_needed_where_the_error_is_small_or_comes_from_the_study() -> None:
    assert compared(runs(6, 0.001), Quantity(100.0, 0.1)).is_precise
    assert not compared(runs(4, 0.02), Quantity(100.0, 0.1)).is_precise
    assert compared(runs(6, 0.001), Quantity(100.0, 2.0)).is_precise
