from math import isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.tools.diagnosis.study_times import Timeline

MOMENTS = st.floats(0.0, 1000.0).map(lambda moment: round(moment, 1))
INTERVALS = st.lists(st.tuples(MOMENTS, MOMENTS).map(lambda pair: (min(pair), max(pair))), max_size=30)


def test_two_trials_overlap_for_a_while_and_a_third_comes_later() -> None:
    timeline = Timeline([(0.0, 10.0), (5.0, 15.0), (20.0, 25.0)])
    assert (timeline.seconds.tolist(), timeline.counts.tolist()) == ([5.0] * 5, [1, 2, 1, 0, 1])
    assert (timeline.covered_s, timeline.gaps_s, timeline.most) == (20.0, (5.0,), 2)
    assert timeline.mean(timeline.covered_s) == 1.25
    assert timeline.tenths() == pytest.approx((1.0, 1.0, 1.5, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0))


def test_time_without_an_interval_counts_as_zero_at_once() -> None:
    timeline = Timeline([(0.0, 2.0), (1.0, 2.0)])
    assert [timeline.quantile(share, 4.0) for share in (0.25, 0.5, 0.75, 1.0)] == [0, 0, 1, 2]


def test_nothing_ran() -> None:
    timeline = Timeline([(3.0, 3.0)])
    assert (timeline.covered_s, timeline.most, timeline.tenths()) == (0.0, 0, ())


@given(INTERVALS)
def test_every_second_of_every_interval_is_counted_once(intervals: list[tuple[float, float]]) -> None:
    timeline, all_s = Timeline(intervals), sum(ended_s - began_s for began_s, ended_s in intervals)
    assert isclose(timeline.mean(1.0), all_s, abs_tol=1e-6)
    assert timeline.most <= len(intervals)
    if timeline.covered_s:
        mean = timeline.mean(timeline.covered_s)
        assert 1.0 - 1e-9 <= mean <= timeline.most + 1e-9
        assert isclose(sum(timeline.tenths()) / 10, mean, abs_tol=1e-6)


@given(INTERVALS, st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_a_larger_share_of_the_time_has_no_smaller_number(
    intervals: list[tuple[float, float]], one: float, other: float
) -> None:
    timeline = Timeline(intervals)
    whole_s = timeline.covered_s + sum(timeline.gaps_s)
    assert timeline.quantile(min(one, other), whole_s) <= timeline.quantile(max(one, other), whole_s) <= timeline.most
