from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests_probe import marks

from tuner.probe.probe_plan import Device
from tuner.probe.result import DeviceSample, DeviceSummary, Progress, Thin
from tuner.probe.summaries import NVML_INTERVAL_S, busy_shares, summarise
from tuner.probe.window import Mark, Window, find_window


def at(times_s: list[float]) -> list[Mark]:
    return [Mark(iteration=number, t_s=t_s) for number, t_s in enumerate(times_s)]


def test_only_samples_inside_the_window_count_but_memory_peaks_anywhere() -> None:
    window = find_window(at([10.0, 20.0]), warmup_iterations=1, ran_out=False)
    assert window is not None
    samples = [
        DeviceSample(t_s=5.0, device=0, util_pct=99.0, mem_used_mib=900.0, power_w=700.0),
        DeviceSample(t_s=12.0, device=0, util_pct=40.0, mem_used_mib=500.0, power_w=100.0),
        DeviceSample(t_s=18.0, device=0, util_pct=60.0, mem_used_mib=500.0, power_w=300.0),
        DeviceSample(t_s=25.0, device=0, util_pct=0.0),
    ]
    summary = summarise(samples, window, Device(name="cuda:0", model="x"), "nvml")
    assert summary.util_mean_pct == 50.0
    assert summary.mem_peak_mib == 900.0
    assert summary.energy_j == 200.0 * 10.0
    assert summary.sm_mean_pct is None


def test_a_reading_at_a_mark_belongs_to_the_iteration_that_it_ends() -> None:
    window = find_window(at([10.0, 20.0]), warmup_iterations=1, ran_out=False)
    assert window is not None
    samples = [DeviceSample(t_s=t_s, device=0, util_pct=t_s) for t_s in (10.0, 15.0, 20.0)]
    summary = summarise(samples, window, Device(name="cuda:0", model="x"), "nvml")
    assert summary.util_mean_pct == 17.5


def test_busy_shares_are_taken_between_each_rank_s_own_marks() -> None:
    reports = [
        Progress(
            rank=rank, iteration=iteration, t_s=10.0 * (iteration + 1) + rank, busy_s=share * 10.0 * (iteration + 1)
        )
        for rank, share in ((0, 0.5), (1, 0.8))
        for iteration in range(3)
    ]
    window = find_window(marks(reports, 2), warmup_iterations=1, ran_out=False)
    assert window is not None
    shares = busy_shares(reports, window, 2)
    assert [share and share.value for share in shares] == [50.0, 80.0]
    assert busy_shares(reports, window, 3) == []


def training(iterations: int, rollout: tuple[float, float], updates: tuple[float, float], by: float) -> DeviceSummary:
    """Summarise iterations of rollout and updates, each with its seconds and its utilisation in percent.

    Of the updates, the `by`-th part is made. If all updates are made, only the window's edges see the lag of the
    measurements.
    """
    lag_s = NVML_INTERVAL_S / 2 if by > 1 else 0.0
    marks, samples, now_s = [Mark(iteration=0, t_s=0.0)], [], 0.0
    for iteration in range(1, iterations + 1):
        from_s = now_s + rollout[0]
        end_s = from_s + updates[0] / by
        marks.append(Mark(iteration=iteration, t_s=end_s, thin=Thin(from_s, by) if by > 1 else None))
        for count in range(round((end_s - now_s) * 20)):
            t_s = now_s + (count + 0.5) / 20
            util_pct = rollout[1] if t_s <= from_s else updates[1]
            samples.append(DeviceSample(t_s=t_s + lag_s, device=0, util_pct=util_pct, power_w=5 * util_pct))
        now_s = end_s
    return summarise(samples, Window(tuple(marks)), Device(name="cuda:0", model="x"), "nvml")


def part(least_s: int, most_s: int) -> st.SearchStrategy[tuple[int, float]]:
    """Draw a part of an iteration: its seconds, and its utilisation in percent."""
    return st.tuples(st.integers(least_s, most_s), st.floats(0, 100))


@given(st.integers(1, 4), part(1, 6), part(8, 40), st.integers(2, 8))
def test_a_thin_window_measures_the_same_as_a_whole_window(
    iterations: int, rollout: tuple[int, float], updates: tuple[int, float], by: int
) -> None:
    whole, thin = (training(iterations, rollout, updates, each) for each in (1, by))
    assert thin.util_mean_pct == pytest.approx(whole.util_mean_pct, abs=1e-6)
    assert thin.util_se_pct == pytest.approx(whole.util_se_pct, abs=1e-6)
    assert thin.energy_j == pytest.approx(whole.energy_j, abs=1e-3)


def test_a_piece_that_nothing_was_read_in_counts_for_nothing() -> None:
    marks = (Mark(iteration=0, t_s=10.0), Mark(iteration=1, t_s=14.0, thin=Thin(10.1, 4.0)))
    samples = [DeviceSample(t_s=t_s, device=0, util_pct=80.0) for t_s in (12.0, 13.0)]
    summary = summarise(samples, Window(marks), Device(name="cuda:0", model="x"), "nvml")
    assert (summary.util_mean_pct, summary.sm_mean_pct) == (pytest.approx(80.0), None)


def test_busy_shares_take_reports_that_came_at_one_time() -> None:
    """Reports get one time if the tuner reads them together and their own time stamps are unusable."""
    reports = [
        Progress(rank=0, iteration=number, t_s=t_s, busy_s=0.5 * t_s)
        for number, t_s in enumerate((1.0, 2.0, 2.0, 3.0, 3.0))
    ]
    shares = busy_shares(reports, Window(tuple(marks(reports, 1))), 1)
    assert [share and share.value for share in shares] == [50.0]


def test_busy_shares_of_a_thin_window_are_those_of_training() -> None:
    reports = [Progress(rank=0, iteration=number, t_s=3.0 * number, busy_s=5.0 * number) for number in range(3)]
    reports = [replace(one, thin=Thin(one.t_s - 1.0, 8.0)) for one in reports]
    window = Window(tuple(marks(reports, 1)))
    shares = busy_shares(reports, window, 1)
    assert [share and share.value for share in shares] == [50.0]
