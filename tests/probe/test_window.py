from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.probe.marks import Mark, counted, marks
from tuner.probe.result import Progress, Thin
from tuner.probe.window import Window, find_window

times = st.lists(st.floats(9.0, 11.0), min_size=2, max_size=12).map(
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


def test_a_count_that_begins_anew_in_each_iteration_gives_no_rate() -> None:
    window = Window(tuple(Mark(iteration=number, t_s=3.0 * number, samples=64) for number in range(5)))
    assert (window.samples_per_s, window.rates()) == (None, [])


def test_an_iteration_is_thin_from_when_the_last_rank_got_there() -> None:
    reports = [
        Progress(rank=0, iteration=0, t_s=9.0, thin=Thin(5.0, 4.0)),
        Progress(rank=1, iteration=0, t_s=9.1, thin=Thin(6.0, 4.0)),
        Progress(rank=0, iteration=1, t_s=18.0, thin=Thin(15.0, 4.0)),
        Progress(rank=1, iteration=1, t_s=18.0),
    ]
    assert [mark.thin for mark in marks(reports, ranks=2)] == [Thin(6.0, 4.0), None]
    assert marks([Progress(iteration=0, t_s=9.0, thin=Thin(5.0, 4.0))], ranks=2)[0].thin == Thin(5.0, 4.0)


def test_a_thin_window_stands_for_all_that_training_does() -> None:
    times = [Mark(iteration=0, t_s=10.0, samples=0), Mark(iteration=1, t_s=13.0, samples=100, thin=Thin(12.0, 8.0))]
    window = Window((*times, Mark(iteration=2, t_s=23.0, samples=200)))
    assert (window.seconds, window.trained_s, window.samples_per_s) == (13.0, 20.0, 10.0)
    assert [(piece.begin_s, piece.end_s, piece.by) for piece in window.pieces()] == [
        *((10.0, 12.0, 1.0), (12.0, 13.0, 8.0), (13.0, 23.0, 1.0))
    ]
    assert [(block.seconds, block.value) for block in window.rates()] == [(10.0, 10.0)] * 2


def test_samples_are_counted_by_the_printed_iterations_where_the_trainer_counts_none() -> None:
    every_tenth = [Mark(iteration=10 * number, t_s=2.0 * number) for number in range(1, 4)]
    found = counted(every_tenth, 6.4)
    assert [mark.samples for mark in found] == [64, 128, 192]
    assert Window(tuple(found)).samples_per_s == 32.0
    assert counted(at([1.0, 2.0]), 6.4) == at([1.0, 2.0])
    assert counted(every_tenth, None) == every_tenth


def at_speeds(*speeds: float | None, step_s: float = 2.0) -> Window:
    printed = [Mark(iteration=number, t_s=step_s * number, samples_per_s=speed) for number, speed in enumerate(speeds)]
    return Window(tuple(printed))


@given(st.lists(st.tuples(st.floats(0.1, 9.0), st.floats(1.0, 1e6)), min_size=1, max_size=5))
def test_printed_speeds_count_by_the_time_since_the_mark_before(printed: list[tuple[float, float]]) -> None:
    found = [Mark(iteration=0, t_s=0.0, samples_per_s=7.0)]
    for step_s, speed in printed:
        found.append(Mark(iteration=len(found), t_s=found[-1].t_s + step_s, samples_per_s=speed))
    window = Window(tuple(found))
    made = sum(step_s * speed for step_s, speed in printed)
    assert window.samples_per_s == pytest.approx(made / sum(step_s for step_s, _ in printed))
    assert sum(block.seconds * block.value for block in window.rates()) == pytest.approx(made)


def test_a_total_goes_before_the_printed_speeds() -> None:
    window = Window(tuple(replace(mark, samples_per_s=1.0) for mark in at([1.0, 2.0, 3.0])))
    assert (window.samples_per_s, [block.value for block in window.rates()]) == (100.0, [100.0, 100.0])
    of_its_own = Window(tuple(replace(mark, samples=64) for mark in at_speeds(5.0, 6.0).marks))
    assert (of_its_own.samples_per_s, [block.value for block in of_its_own.rates()]) == (6.0, [6.0])


def test_an_unknown_speed_leaves_the_rate_unknown() -> None:
    assert at_speeds(5.0, None, 5.0).samples_per_s is None
    assert at_speeds(None, 5.0, 5.0).samples_per_s == 5.0


def test_averages_since_a_slow_start_give_no_rate() -> None:
    since_start = [64 * number / (10.0 + number) for number in range(1, 9)]
    assert (at_speeds(*since_start).samples_per_s, at_speeds(*since_start).rates()) == (None, [])
    assert at_speeds(*since_start[:6]).samples_per_s is not None
    assert at_speeds(*sorted(100.0 + step / 10 for step in range(8))).samples_per_s is not None
    assert at_speeds(*since_start, 1.0).samples_per_s is not None


def test_the_speeds_of_ranks_add_up() -> None:
    reports = [Progress(rank=rank, iteration=0, t_s=1.0, samples_per_s=speed) for rank, speed in ((0, 5.0), (1, 6.0))]
    assert marks(reports, ranks=2)[0].samples_per_s == 11.0
    assert marks([reports[0], replace(reports[1], samples_per_s=None)], ranks=2)[0].samples_per_s is None
    assert marks([Progress(iteration=0, t_s=1.0, samples_per_s=5.0)], ranks=2)[0].samples_per_s == 5.0
