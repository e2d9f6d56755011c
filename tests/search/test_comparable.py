"""Which measurements cannot stand beside each other."""

from dataclasses import replace
from typing import Any

import pytest

from tuner.probe import Change
from tuner.records.trial import ProbeRecord, TrialRecord
from tuner.search.comparable import resumed, unlike

STEPS = 100


def counting(number: int, each: float = 0, *, reached: int = STEPS, **facts: Any) -> TrialRecord:
    """Return a complete trial of its own config, with `each` samples in an iteration."""
    probe = ProbeRecord(
        digest=str(number), status="ok", iteration=reached, samples=round(each * reached) or None, **facts
    )
    return TrialRecord(number=number, values=(1.0 + number,), probe=probe)


@pytest.mark.parametrize(
    ("readings", "apart"),
    [
        ([(43.0, 1.0), (100.0, 2.0)], True),
        ([(100.0, 2.0), (100.0, 1.0), (43.0, 1.0)], True),
        ([(90.0, 1.0), (100.0, 1.0)], False),
        ([(43.0, 20.0), (100.0, 20.0)], False),
        ([(43.0, 1.0)], False),
    ],
)
def test_a_config_whose_readings_are_far_apart_cannot_be_compared(
    readings: list[tuple[float, float]], apart: bool
) -> None:
    its = [counting(number, samples_per_s=speed, samples_per_s_se=se) for number, (speed, se) in enumerate(readings)]
    other = [counting(9, samples_per_s=100.0, samples_per_s_se=1.0)]
    assert (unlike(its, other) is not None) is (unlike(other, its) is not None) is apart


@pytest.mark.parametrize(
    ("runs", "goes_on"),
    [
        ([(10, 1.0, 20.0), (210, 1.0, 70.0)], True),  # 210 iterations take three seconds
        ([(10, 1.0, 20.0), (60, 1.0, 70.0)], False),  # a faster run tells later
        ([(10_000, 5.0, 50.0), (10_000, 5.0, 80.0)], False),  # what comes before learning is fast
        ([(0, 1.0, 20.0), (0, 1.0, 70.0)], False),
        ([(110, 1.0, 20.0), (150, 1.0, 70.0), (210, 1.0, 20.0)], False),
        ([(110, 1.0, 20.0), (150, 1.0, 70.0), (280, 1.0, 20.0), (210, 1.0, 70.0)], True),  # the first goes on, too
    ],
)
def test_a_run_that_goes_on_where_another_has_saved_is_told(
    runs: list[tuple[int, float, float]], goes_on: bool
) -> None:
    trials = [
        counting(number % 2, reached=began + 500, began=began, start_up_s=start_up_s, iterations_per_s=rate)
        for number, (began, start_up_s, rate) in enumerate(runs)
    ]
    assert (resumed(trials) is not None) is goes_on
    assert resumed(replace(one, probe=replace(one.probe, warm=True)) for one in trials) is None  # a session goes on


@pytest.mark.parametrize(("begun", "goes_on"), [((260, 390, 590), True), ((260, 250, 390), False), ((260, 390), False)])
def test_runs_that_each_begin_where_the_one_before_has_ended_go_on(begun: tuple[int, ...], goes_on: bool) -> None:
    trials = [
        counting(number, reached=began + 150, began=began, start_up_s=0.5, iterations_per_s=50.0)
        for number, began in enumerate(begun)
    ]
    assert (resumed(trials) is not None) is goes_on


def test_a_speed_that_changed_cannot_be_compared_with_one_that_has_not_come_so_far() -> None:
    changed = counting(1, 32, reached=200, change=Change(150, 8.0, 3.0))

    def later(each: float, reached: int, trained_s: float) -> list[TrialRecord]:
        return [counting(0, each, reached=reached, start_up_s=2.0, total_s=2.0 + trained_s)]

    assert "iteration 150" in (unlike(later(32, 149, 9.0), [changed]) or "")
    assert unlike([changed], later(32, 149, 9.0))
    assert unlike(later(32, 151, 7.0), [changed])  # perhaps somebody else's job was over by then
    assert unlike(later(32, 151, 9.0), [changed]) is None
    assert unlike(later(64, 75, 9.0), [changed]) is None  # as many samples
    assert unlike(later(32, 10, 1.0), [counting(1, 32, change=Change(50, 8.0, 1.2))]) is None
