"""Which measurements cannot stand beside each other."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.kept.trial import KeptProbe, KeptTrial
from tuner.probe import Change
from tuner.search.comparable import assumed, clocked, miscounted, resumed, shrinking, unlike
from tuner.search.standing import eligible

STEPS = 100


def counting(number: int, end: float | None, each: float = 0, *, reached: int = STEPS, **facts: Any) -> KeptTrial:
    """Return a complete trial of its own config, whose count ends at `end`, with `each` samples in an iteration."""
    probe = KeptProbe(
        digest=str(number), status="ok", end=end, iteration=reached, samples=round(each * reached) or None, **facts
    )
    return KeptTrial(number=number, values=(1.0 + number,), probe=probe)


@pytest.mark.parametrize(
    ("trials", "left_out"),
    [
        ([(1875, 32), (938, 64), (469, 128)], set()),  # all data, however large a batch is
        ([(500, 32), (500, 64), (500, 128)], set()),  # a fixed number of iterations
        ([(1875, 32), (1250, 64), (1250, 128), (1875, 32)], {1, 2}),  # the script caps its batch at 48
        ([(1250, 64), (1250, 128), (1875, 32)], {1, 2}),
        ([(3, 300), (1, 600)], set()),  # an end leaves out a part of an iteration
        ([(400, 0), (100_000, 0), (100_000, 0)], {0}),  # a preparation
        ([(75, 32), (150, 32), (600, 32), (75, 32)], {1, 2}),  # each worker reads all data
        ([(1000, 0), (1040, 0)], set()),  # epochs differ by some iterations
        ([(None, 32), (10, 64)], set()),
        ([(100, 32), (140, 64), (100, 32.004)], {1}),  # a fraction, and rounded totals
    ],
)
def test_ends_that_are_not_those_of_the_same_data_do_not_count(
    trials: list[tuple[float | None, float]], left_out: set[int]
) -> None:
    history = [counting(number, *one) for number, one in enumerate(trials)]
    assert set(miscounted(history)) == left_out
    assert set(eligible(history)) == {str(number) for number in range(len(trials))} - {str(one) for one in left_out}


def test_a_soak_whose_flags_shorten_an_epoch_says_whether_memory_lasts() -> None:
    probed, soaked = counting(0, 2500.0), replace(counting(0, 200.0), number=1, soaks=True)
    assert miscounted([probed, soaked]) == {}
    assert set(eligible([probed, soaked])) == {"0"}


@given(st.integers(1, 10**6), st.lists(st.integers(1, 512), min_size=1, max_size=8), st.booleans())
def test_all_samples_of_the_data_are_the_same_data_at_any_batch(data: int, batches: list[int], whole: bool) -> None:
    ends = [data // batch if whole else -(-data // batch) for batch in batches]
    assert miscounted(counting(*one) for one in zip(range(99), ends, batches, strict=False)) == {}


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
    its = [
        counting(number, None, samples_per_s=speed, samples_per_s_se=se) for number, (speed, se) in enumerate(readings)
    ]
    other = [counting(9, None, samples_per_s=100.0, samples_per_s_se=1.0)]
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
        counting(number % 2, None, reached=began + 500, began=began, start_up_s=start_up_s, iterations_per_s=rate)
        for number, (began, start_up_s, rate) in enumerate(runs)
    ]
    assert (resumed(trials) is not None) is goes_on
    assert resumed(replace(one, probe=replace(one.probe, warm=True)) for one in trials) is None  # a session goes on


@pytest.mark.parametrize(("begun", "goes_on"), [((260, 390, 590), True), ((260, 250, 390), False), ((260, 390), False)])
def test_runs_that_each_begin_where_the_one_before_has_ended_go_on(begun: tuple[int, ...], goes_on: bool) -> None:
    trials = [
        counting(number, None, reached=began + 150, began=began, start_up_s=0.5, iterations_per_s=50.0)
        for number, began in enumerate(begun)
    ]
    assert (resumed(trials) is not None) is goes_on


def test_a_speed_that_changed_cannot_be_compared_with_one_that_has_not_come_so_far() -> None:
    changed = counting(1, None, 32, reached=200, change=Change(150, 8.0, 3.0))

    def later(each: float, reached: int, trained_s: float) -> list[KeptTrial]:
        return [counting(0, None, each, reached=reached, start_up_s=2.0, total_s=2.0 + trained_s)]

    assert "iteration 150" in (unlike(later(32, 149, 9.0), [changed]) or "")
    assert unlike([changed], later(32, 149, 9.0))
    assert unlike(later(32, 151, 7.0), [changed])  # perhaps somebody else's job was over by then
    assert unlike(later(32, 151, 9.0), [changed]) is None
    assert unlike(later(64, 75, 9.0), [changed]) is None  # as many samples
    assert unlike(later(32, 10, 1.0), [counting(1, None, 32, change=Change(50, 8.0, 1.2))]) is None


def test_iterations_of_more_samples_that_take_less_time_are_doubted() -> None:
    def pair(slow: float, fast: float, **config: int) -> str | None:
        small = replace(counting(0, None, 32, iterations_per_s=slow), config={"batch": 32, "workers": 0})
        large = replace(counting(1, None, 256, iterations_per_s=fast), config={"batch": 256, "workers": 0, **config})
        return shrinking([small, large])

    assert "256 samples (#1)" in (pair(4.7, 7.1) or "")
    assert pair(4.7, 4.7) is None
    nearly = [counting(number, None, 32.0 + number, iterations_per_s=1.0 + number) for number in range(2)]
    assert shrinking([replace(one, config={"workers": one.number}) for one in nearly]) is None  # own counts vary
    assert pair(4.7, 7.1, workers=4) is None


def test_lines_of_a_clock_are_told() -> None:
    def every(*seconds: float) -> str | None:
        return clocked(counting(number, None, iterations_per_s=1 / one) for number, one in enumerate(seconds))

    assert "2 s" in (every(2.02, 2.0, 2.04) or "")
    assert every(2.02, 2.0) is None  # two may be chance
    assert every(2.02, 1.0, 0.5) is None
    assert every(0.101, 0.1, 0.1) is None
    assert every(23.4, 23.4, 23.4) is None  # flags without effect


def test_an_epoch_that_is_as_long_at_a_larger_batch_is_told() -> None:
    small, large = ([counting(number, 1250, each, epochs=0)] for number, each in enumerate((64, 512)))
    assert "1250 iterations" in (assumed(large, small) or "")
    assert assumed(large, large) is None
    assert assumed([counting(0, 1250, 64)], [counting(1, 1250, 512)]) is None  # a fixed number of steps
    assert assumed([counting(0, 1250, 64, epochs=0)], [counting(1, 625, 128, epochs=0)]) is None
