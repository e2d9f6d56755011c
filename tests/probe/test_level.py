"""Iterations that change to another level: what the window does, and what the result claims."""

import json
import math
import random
from itertools import accumulate

import pytest
from tests_probe import DEVICES, PATTERN, iterations, probe

from tuner.probe.probe_plan import Answer, LinePatterns, Next
from tuner.probe.quantities import change_point, last_level, student_tail
from tuner.probe.result import DeviceSample, FailureKind, ProbeResult
from tuner.search.verdict import next_answer
from tuner.study.spec import ProbeSpec

COUNTED = LinePatterns(patterns=(r"it (?P<iteration>\d+) samples (?P<samples>\d+)",))
LIMITS = ProbeSpec()
SLOW_PCT, STEADY_PCT = 5.0, 40.0


def precise(so_far: ProbeResult | None, objective: str = "min_avg_util") -> Answer:
    return next_answer(so_far, [objective], LIMITS) if so_far else Answer(Next.GO)


def compiled(slow: int, slow_s: float = 3.0, steady_s: float = 0.3) -> tuple[ProbeResult, float]:
    """Probe a trainer whose first iterations are slow; return the result and when the last slow one ends."""
    steps = [slow_s] * slow + [steady_s] * 2000
    times_s = list(accumulate(steps, initial=10.0))
    steady_from_s = times_s[slow]
    readings = tuple(
        DeviceSample(t_s=tick / 10, device=device, util_pct=SLOW_PCT if tick / 10 <= steady_from_s else STEADY_PCT)
        for tick in range(6000)
        for device in range(len(DEVICES))
    )
    lines = [(t_s, f"it {number} samples {100 * number}") for number, t_s in enumerate(times_s)]
    result, _ = probe(lines, patterns=COUNTED, readings=readings, stop=precise)
    return result, steady_from_s


def test_slow_first_iterations_are_waited_out() -> None:
    for slow in [1, 2, 3, 5]:
        result, _ = compiled(slow)
        assert result.ok
        assert result.devices[0].util_mean_pct == pytest.approx(STEADY_PCT, abs=0.5)
        assert result.samples_per_s == pytest.approx(100 / 0.3, rel=0.01)
        assert result.notes == ()


def test_a_change_that_is_not_waited_out_is_said_and_counts_in_the_error() -> None:
    steps = [3.0] * 5 + [30.0] * 3  # each line tells of ten iterations
    lines = [(t_s, f"it {10 * number}") for number, t_s in enumerate(accumulate(steps, initial=10.0))]
    result, _ = probe(lines, max_seconds=90)
    assert result.ok
    (note,) = result.notes
    assert note.startswith("iterations changed from 0.3 s to 3 s")


@pytest.mark.parametrize(("slow_s", "max_seconds"), [(12.0, 90.0), (15.0, 110.0)])
def test_the_truth_lies_within_twice_the_error_where_the_time_ends_after_a_change(
    slow_s: float, max_seconds: float
) -> None:
    steps = [slow_s] * 5 + [0.3] * 2000
    times_s = list(accumulate(steps, initial=10.0))
    readings = tuple(
        DeviceSample(t_s=tick / 10, device=device, util_pct=SLOW_PCT if tick / 10 <= times_s[5] else STEADY_PCT)
        for tick in range(6000)
        for device in range(2)
    )
    lines = [(t_s, f"it {number}") for number, t_s in enumerate(times_s)]
    result, _ = probe(lines, readings=readings, max_seconds=max_seconds)
    device = result.devices[0]
    assert device.util_mean_pct is not None
    assert device.util_se_pct is not None
    assert abs(device.util_mean_pct - STEADY_PCT) <= 2 * device.util_se_pct
    assert len(result.notes) == 1


def old_lines(count: int = 45) -> list[tuple[float, str]]:
    return [(5.0 + number * 1e-6, f"it {number} samples {100 * number}") for number in range(count)]


def test_old_lines_at_the_start_are_no_measurement() -> None:
    live = [(8.0 + 0.3 * number, f"it {45 + number} samples {4500 + 100 * number}") for number in range(500)]
    result, _ = probe([*old_lines(), *live], patterns=COUNTED, stop=lambda one: precise(one, "samples_per_s"))
    assert result.ok
    assert result.samples_per_s == pytest.approx(100 / 0.3, rel=0.02)


@pytest.mark.parametrize("exit_at_s", [None, 5.5, 60.0])
def test_a_window_of_microseconds_is_a_failure_however_the_probe_ends(exit_at_s: float | None) -> None:
    chatter = [(6.0 + second, "working") for second in range(100)]
    lines = [*old_lines(), *chatter]
    result, _ = probe(lines, patterns=COUNTED, exit_at_s=exit_at_s, max_seconds=90, stop=precise)
    assert result.failure is not None
    assert result.failure.kind in {FailureKind.TOO_SLOW, FailureKind.NO_READING, FailureKind.HANG}
    assert (result.samples_per_s, result.window_s) == (None, None)


def test_every_value_of_a_probe_that_is_ok_has_an_error() -> None:
    slow = [(10.0 + 90.0 * number, f"it {number} samples {100 * number}") for number in range(20)]
    result, _ = probe(slow, patterns=COUNTED, max_seconds=200, stop=precise)
    assert (result.ok, result.iterations) == (True, 2)
    one, _ = probe(slow, patterns=COUNTED, max_seconds=120, stop=precise)
    assert (one.ok, one.iterations) == (True, 1)
    errors = [one.samples_per_s_se, *(device.util_se_pct for device in one.devices)]
    assert errors == [pytest.approx(error) for error in (0.15 * 100 / 90, 0.12 * 50, 0.12 * 30)]


def scattered(count: int, seed: int) -> list[DeviceSample]:
    """Return utilisation that scatters by 20 points from iteration to iteration of three seconds."""
    chance = random.Random(seed)
    means = [50.0 + chance.gauss(0.0, 20.0) for _ in range(count)]
    return [
        DeviceSample(t_s=tick / 10, device=device, util_pct=min(100.0, max(0.0, means[tick // 30])))
        for tick in range(30 * count)
        for device in range(2)
    ]


@pytest.mark.parametrize("seed", range(2))
def test_a_probe_goes_on_beyond_its_iterations_while_its_error_is_large(seed: int) -> None:
    result, _ = probe(iterations(200), readings=tuple(scattered(300, seed)), stop=precise)
    error = max(device.util_se_pct or math.inf for device in result.devices)
    assert result.ok
    assert result.iterations > LIMITS.iterations
    assert error <= 3.1 * LIMITS.target_error_pct


def test_a_probe_that_is_far_from_known_ends_at_its_time_limit() -> None:
    result, trainer = probe(iterations(200), readings=tuple(scattered(300, 0)), max_seconds=40, stop=precise)
    assert result.ok
    assert trainer.ended_at_s is not None
    assert 66.0 <= trainer.ended_at_s <= 70.0


def test_samples_that_count_each_iteration_s_own_give_no_rate_however_they_grow() -> None:
    lines = [(10.0 + number, f"it {number} samples {33_000 + 3 * number}") for number in range(50)]
    result, _ = probe(lines, patterns=COUNTED, stop=precise)
    assert result.ok
    assert result.samples_per_s is None
    assert result.notes == ("samples/s is unknown: `samples` is not the total since the start",)


@pytest.mark.parametrize("first", [0, 1, 2441])
def test_a_total_that_a_resumed_run_continues_gives_a_rate(first: int) -> None:
    lines = [(10.0 + n, f"it {first + n} samples {4096 * (first + n + 1)}") for n in range(50)]
    result, _ = probe(lines, patterns=COUNTED, stop=precise)
    assert result.samples_per_s == pytest.approx(4096)


def test_the_last_level_begins_after_the_last_change() -> None:
    for durations_s, first in [
        ([10.0] * 3 + [1.0] * 4, 3),
        ([30.0, 1.0, 1.0], 1),
        ([30.0] * 2 + [10.0] * 2 + [1.0] * 6, 4),
        ([10.0] * 5 + [0.05] * 3, 5),
        ([10.0] * 6 + [1.0], 6),
        ([3.0, 3.0, 3.0, 3.9], 0),
        ([1.0] * 6 + [10.0], 0),
        ([1.0] * 6 + [10.0, 1.0], 0),
        (([0.0] * 99 + [7.0]) * 3, 0),
        ([0.0] * 44, 0),
        ([], 0),
    ]:
        assert last_level(durations_s) == first


@pytest.mark.parametrize("correlation", [0.0, 0.4])
@pytest.mark.parametrize("count", [4, 7, 12, 50])
def test_iterations_that_only_scatter_seldom_show_a_change(count: int, correlation: float) -> None:
    chance, found = random.Random(count), 0
    for _ in range(1000):
        logs, last = [], chance.gauss(0.0, 0.1)
        for _ in range(count):
            last = correlation * last + chance.gauss(0.0, 0.1 * math.sqrt(1 - correlation**2))
            logs.append(last)
        found += change_point(logs) is not None
    assert found <= 10


def test_the_tail_is_that_of_the_tables() -> None:
    for freedom, t in [(1, 12.7062), (2, 4.3027), (3, 3.1824), (8, 2.3060), (60, 2.0003)]:
        assert student_tail(t, freedom) == pytest.approx(0.05, abs=1e-4)


def test_busy_seconds_beyond_the_elapsed_time_are_refused() -> None:
    records = [
        (3.0 * iteration + 3, json.dumps({"iteration": iteration, "rank": rank, "busy_s": 6.0 * iteration}))
        for iteration in range(9)
        for rank in range(2)
    ]
    result, _ = probe(records, patterns=PATTERN, on_cpu=True)
    assert [(device.source, device.util_mean_pct) for device in result.devices] == [("busy_share", None)] * 2
    assert result.notes == ("utilisation is unknown: a rank reports more `busy_s` than the time that has passed",)


def test_a_busy_machine_is_said() -> None:
    readings = tuple(
        DeviceSample(t_s=tick / 10, device=rank, util_pct=50.0, others_pct=43.0, delayed_pct=21.0)
        for tick in range(600)
        for rank in range(2)
    )
    records = [
        (3.0 * iteration + 3, json.dumps({"iteration": iteration, "rank": rank}))
        for iteration in range(9)
        for rank in range(2)
    ]
    result, _ = probe(records, readings=readings, on_cpu=True)
    assert result.notes == ("other processes used 43 % of the processors, so another run may give another value",)
    assert result.devices[0].others_mean_pct == pytest.approx(43.0)
    assert result.devices[0].delayed_mean_pct == pytest.approx(21.0)


@pytest.mark.parametrize("silent_s", [0, 300])
def test_a_failure_for_lack_of_time_says_how_busy_other_programs_were(silent_s: int) -> None:
    readings = tuple(DeviceSample(t_s=tick, device=rank, others_pct=86.0) for tick in range(400) for rank in range(2))
    lines = [(float(t_s), "starting") for t_s in range(0, 390, 10)] + iterations(3, 395.0, 1.5)
    result, _ = probe(lines[: 10 if silent_s else 99], readings=readings, max_seconds=5, silence_seconds=60)
    assert result.failure is not None
    assert result.failure.kind is (FailureKind.HANG if silent_s else FailureKind.TOO_SLOW)
    assert "86 % of the processors" in result.failure.detail
    assert not any("of the processors" in note for note in result.notes)
    assert result.is_disturbed


def test_a_window_that_begins_at_a_change_says_where_and_by_how_much() -> None:
    result, _ = compiled(5)
    assert result.change is not None
    assert (result.change.iteration, result.change.seconds) == (5, pytest.approx(15.0))
    assert result.change.times == pytest.approx(10.0, rel=0.2)
    assert compiled(0)[0].change is None
