"""The result of a recorded probe before its end."""

from dataclasses import replace
from itertools import accumulate
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.probe.metrics import OBJECTIVES, error, value
from tuner.probe.quantities import FULL_PCT, Block, standard_error
from tuner.probe.result import DeviceSummary, ProbeResult
from tuner.replay import cut_short, series_error, with_objective

numbers = st.floats(0, 100)
DEVICES = tuple(
    DeviceSummary(
        device=f"cuda:{rank}",
        source="nvml",
        util_mean_pct=60.0 + rank,
        util_se_pct=1.0 + rank,
        sm_mean_pct=30.0 - rank,
        sm_se_pct=0.5,
        power_mean_w=200.0,
        energy_j=2800.0,
    )
    for rank in range(2)
)
RESULT = ProbeResult(
    config={"num_envs": 8},
    plan_digest="",
    started_at="",
    total_s=45.0,
    start_up_s=30.5,
    window_s=14.0,
    trained_s=14.0,
    iterations=7,
    samples=7000,
    samples_per_s=500.0,
    samples_per_s_se=5.0,
    devices=DEVICES,
)


@pytest.mark.parametrize("objective", OBJECTIVES)
@given(number=numbers, known=st.none() | numbers)
def test_any_objective_can_be_restated(objective: str, number: float, known: float | None) -> None:
    result = with_objective(RESULT, objective, number, known)
    assert value(result, objective) == pytest.approx(number)
    assert error(result, objective) == known
    assert all(value(result, other) == value(RESULT, other) for other in OBJECTIVES if other != objective)


def test_devices_move_alike_and_one_without_a_reading_stays() -> None:
    blind = replace(RESULT, devices=(*DEVICES, replace(DEVICES[0], util_mean_pct=None)))
    means = [device.util_mean_pct for device in with_objective(blind, "min_avg_util", 50.0, None).devices]
    assert means == [50.0, 51.0, None]


def test_a_probe_cut_short_takes_as_much_less_time() -> None:
    short = cut_short(RESULT, 3)
    assert (short.iterations, short.window_s, short.total_s) == (3, 6.0, 37.0)
    assert (short.samples, short.start_up_s, short.samples_per_s) == (None, 30.5, 500.0)
    assert [device.energy_j for device in short.devices] == [1200.0] * 2


def test_a_thin_probe_cut_short_stands_for_as_much_less_training() -> None:
    devices = tuple(replace(device, energy_j=11_200.0) for device in RESULT.devices)
    thin = cut_short(replace(RESULT, trained_s=56.0, devices=devices), 3)
    assert (thin.window_s, thin.trained_s) == (6.0, 24.0)
    assert [device.energy_j for device in thin.devices] == [4800.0] * 2


def test_cut_at_its_end_it_is_as_long_as_it_was() -> None:
    assert replace(cut_short(RESULT, 7), samples=7000) == RESULT


@given(values=st.lists(numbers, min_size=1, max_size=12))
def test_the_error_is_that_of_the_readings_behind_the_means(values: list[float]) -> None:
    means = [total / count for count, total in enumerate(accumulate(values), start=1)]
    expected = standard_error([Block(2.0, reading) for reading in values], largest=FULL_PCT)
    known = series_error(means, 2.0, full=FULL_PCT)
    assert known is expected is None or known == pytest.approx(expected, rel=1e-3, abs=1e-3)


def test_short_iterations_count_together() -> None:
    assert series_error([50.0, 51.0, 50.0, 51.0], 0.2, full=FULL_PCT) == standard_error(
        [Block(0.6, 50.0)], largest=FULL_PCT
    )
    assert series_error([50.0, 51.0, 50.0, 51.0, 50.0, 51.0, 50.0, 51.0, 50.0], 0.2, full=FULL_PCT) is not None


def test_a_mean_that_is_unknown_is_left_out() -> None:
    blocks = [Block(4.0, 50.0), Block(4.0, 50.0), Block(2.0, 50.0), Block(2.0, 50.0)]
    assert series_error([None, 50.0, None, 50.0, 50.0, 50.0], 2.0, full=inf) == standard_error(blocks)
