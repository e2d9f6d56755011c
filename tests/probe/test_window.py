from hypothesis import given
from hypothesis import strategies as st
from tests_probe import marks

from tuner.probe.result import Pause, Progress, Thin
from tuner.probe.window import Mark, Window, find_window, with_pauses

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
    assert (window.samples_per_s, window.sample_rates()) == (None, [])


def test_a_count_that_begins_above_what_its_growth_explains_is_no_total() -> None:
    for counts, rate in [
        ([500 + 200 * number for number in range(12)], None),  # of each iteration, and growing
        ([100 * number + (100 if number else 0) for number in range(12)], 50.0),  # the first line lacks an iteration
        ([100 * number + 100 for number in range(12)], 50.0),
        ([100 * number + 200 for number in range(12)], 50.0),  # the first iteration has twice the samples
    ]:
        found = [Mark(iteration=number, t_s=2.0 * number, samples=count) for number, count in enumerate(counts)]
        window = find_window(found, warmup_iterations=3, ran_out=False)
        assert window is not None
        assert window.samples_per_s == rate


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
    assert [(piece.begin_s, piece.end_s, piece.trained_per_s) for piece in window.pieces] == [
        *((10.0, 12.0, 1.0), (12.0, 13.0, 8.0), (13.0, 23.0, 1.0))
    ]
    assert [(block.seconds, block.value) for block in window.sample_rates()] == [(10.0, 10.0)] * 2


def test_samples_are_counted_by_the_printed_iterations_where_the_trainer_counts_none() -> None:
    every_tenth = [Progress(iteration=10 * number, t_s=2.0 * number) for number in range(1, 4)]
    found = marks(every_tenth, ranks=1, samples_per_iteration=6.4)
    assert [mark.samples for mark in found] == [64, 128, 192]
    assert Window(tuple(found)).samples_per_s == 32.0
    with_own_count = [*every_tenth, Progress(iteration=40, t_s=8.0, samples=7), Progress(iteration=50, t_s=9.0)]
    found = marks(with_own_count, ranks=1, samples_per_iteration=6.4)
    assert [mark.samples for mark in found] == [None, None, None, 7, None]


def test_once_a_rank_reports_for_itself_reports_without_a_rank_do_not_count() -> None:
    ranks = [None, None, 0, None, 7]
    reports = [Progress(iteration=number, t_s=number, rank=rank) for number, rank in enumerate(ranks)]
    assert [mark.iteration for mark in marks(reports, ranks=1)] == [2]


def test_an_epoch_of_few_iterations_whose_last_is_short_has_no_pause() -> None:
    """An epoch of three batches prints 2/3 after two whole ones, then 3/3 after a short one."""
    ended = [Mark(iteration=0, t_s=0.0)]
    for epoch in range(8):
        begun_s = ended[-1].t_s
        end = Pause("an epoch's end", 3) if epoch else None
        ended += [
            Mark(iteration=3 * epoch + 2, t_s=begun_s + 0.81, pause=end),
            Mark(iteration=3 * epoch + 3, t_s=begun_s + 0.96),
        ]
    assert not any(mark.pause_s for mark in with_pauses(ended[2:]))
