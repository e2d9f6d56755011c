from hypothesis import given
from hypothesis import strategies as st

from tuner.probe.plan import Device
from tuner.probe.result import DeviceSample, Progress
from tuner.probe.window import Mark, Window, busy_shares, find_window, marks, summarise

times = st.lists(st.floats(0.1, 50), min_size=2, max_size=12).map(
    lambda steps: [sum(steps[: count + 1]) for count in range(len(steps))]
)


def at(times_s: list[float]) -> list[Mark]:
    return [Mark(iteration=number, t_s=t_s, samples=100 * number) for number, t_s in enumerate(times_s)]


@given(times, st.integers(1, 4), st.booleans())
def test_the_window_lies_between_marks_and_leaves_out_warm_up_and_wind_down(
    times_s: list[float], warmup: int, ran_out: bool
) -> None:
    found = find_window(at(times_s), warmup_iterations=warmup, ran_out=ran_out)
    usable = times_s[warmup - 1 : -1 if ran_out else None]
    if len(usable) < 2:
        assert found is None
    else:
        assert found is not None
        assert (found.first.t_s, found.last.t_s) == (usable[0], usable[-1])
        assert found.iterations == len(usable) - 1


def test_an_iteration_counts_when_the_last_rank_has_closed_it() -> None:
    reports = [
        Progress(rank=0, iteration=0, t_s=1.0, samples=10),
        Progress(rank=1, iteration=0, t_s=3.0, samples=11),
        Progress(rank=0, iteration=1, t_s=4.0, samples=20),
    ]
    assert marks(reports, ranks=2) == [Mark(iteration=0, t_s=3.0, samples=21)]


def test_a_rank_that_never_reports_keeps_iterations_open() -> None:
    assert marks([Progress(rank=0, iteration=number, t_s=number) for number in range(5)], ranks=2) == []


def test_only_samples_inside_the_window_count_but_memory_peaks_anywhere() -> None:
    window = find_window(at([10.0, 20.0]), warmup_iterations=1, ran_out=False)
    assert window is not None
    samples = [
        DeviceSample(t_s=5.0, device=0, util_pct=99.0, mem_used_mib=900.0, power_w=700.0),
        DeviceSample(t_s=12.0, device=0, util_pct=40.0, mem_used_mib=500.0, power_w=100.0),
        DeviceSample(t_s=18.0, device=0, util_pct=60.0, mem_used_mib=500.0, power_w=300.0),
        DeviceSample(t_s=25.0, device=0, util_pct=0.0),
    ]
    (summary,) = summarise(samples, window, [Device(name="cuda:0", model="x")], "nvml")
    assert summary.util_mean_pct == 50.0
    assert summary.mem_peak_mib == 900.0
    assert summary.energy_j == 200.0 * 10.0
    assert summary.sm_mean_pct is None


def test_a_reading_at_a_mark_belongs_to_the_iteration_that_it_ends() -> None:
    window = find_window(at([10.0, 20.0]), warmup_iterations=1, ran_out=False)
    assert window is not None
    samples = [DeviceSample(t_s=t_s, device=0, util_pct=t_s) for t_s in (10.0, 15.0, 20.0)]
    (summary,) = summarise(samples, window, [Device(name="cuda:0", model="x")], "nvml")
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
    assert shares is not None
    assert [share.mean_pct for share in shares] == [50.0, 80.0]
    assert busy_shares(reports, window, 3) is None


def test_a_count_of_each_iteration_s_own_tells_no_rate() -> None:
    window = Window(tuple(Mark(iteration=number, t_s=3.0 * number, samples=64) for number in range(5)))
    assert (window.samples_per_s, window.rates()) == (None, [])
