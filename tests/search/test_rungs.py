"""The rungs of an `auto` ladder, for any expectation of what is safe and possible."""

from collections.abc import Callable
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tuner.search.strategies import calibration_rungs, make_rungs
from tuner.study.space import doublings

MOST = 1 << 18
BOUNDS = st.tuples(st.integers(1, MOST), st.integers(1, MOST)).map(sorted)
ENDS = st.tuples(st.integers(0, 2 * MOST), st.integers(0, 2 * MOST)).map(sorted)
"""The largest safe number and the largest possible number."""


def up_to(end: int) -> Callable[[int], bool]:
    return lambda rung: rung <= end


@given(BOUNDS)
def test_doublings_go_from_bound_to_bound(bounds: list[int]) -> None:
    first, last = bounds
    rungs = doublings(first, last)
    assert (rungs[0], rungs[-1]) == (first, last)
    assert all(low < high <= 2 * low for low, high in pairwise(rungs))
    assert all(high == 2 * low for low, high in pairwise(rungs[:-1]))


@given(BOUNDS)
def test_calibration_begins_at_two_small_rungs_and_goes_down(bounds: list[int]) -> None:
    known = doublings(*bounds)
    rungs = calibration_rungs(known)
    assert set(rungs) == set(known[:5])
    assert len(rungs) == len(set(rungs))
    assert rungs[1:] == sorted(rungs[1:], reverse=True)
    assert len(rungs) < 2 or rungs[0] < rungs[1]


def test_the_usual_ladder_is_calibrated_at_64_and_512() -> None:
    assert calibration_rungs(doublings(32, 65536)) == [64, 512, 256, 128, 32]


@given(BOUNDS, ENDS, st.data())
def test_rungs_are_sorted_and_between_the_bounds(bounds: list[int], ends: list[int], data: st.DataObject) -> None:
    known = doublings(*bounds)
    safe, possible = ends
    tried = data.draw(st.sets(st.sampled_from(known)))
    rungs = make_rungs(known, safe=up_to(safe), possible=up_to(possible), tried=tried)
    assert list(rungs) == sorted(set(rungs))
    assert (rungs[0], rungs[-1] <= known[-1]) == (known[0], True)
    assert tried <= set(rungs)
    assert {rung for rung in known if rung <= possible} <= set(rungs)
    assert all(rung <= possible for rung in set(rungs) - tried - {known[0]})


@given(BOUNDS, ENDS)
def test_the_last_rung_is_never_far_below_the_last_safe_number(bounds: list[int], ends: list[int]) -> None:
    known = doublings(*bounds)
    safe, possible = ends
    rungs = make_rungs(known, safe=up_to(safe), possible=up_to(possible))
    reach = min(safe, known[-1])
    assert reach < known[0] or max(rung for rung in rungs if rung <= reach) > reach / (1.25 + 1 / 8) - 1


@given(BOUNDS, st.integers(0, 2 * MOST))
def test_at_most_two_rungs_are_no_doublings(bounds: list[int], safe: int) -> None:
    known = doublings(*bounds)
    finer = set(make_rungs(known, safe=up_to(safe), possible=up_to(safe))) - set(known)
    assert len(finer) <= 2
    assert known[0] < safe < known[-1] or not finer
    assert all(rung >= 1.25 * max(one for one in known if one < rung) for rung in finer)


def test_rungs_come_close_together_where_memory_ends() -> None:
    for safe, possible, largest in [
        (38_623, 46_000, (8192, 16384, 32768)),
        (41_000, 46_000, (16384, 32768, 40960)),
        (58_000, 64_000, (32768, 45056, 57344)),
        (30_000, 33_000, (16384, 22528, 28672, 32768)),
        (33_000, 33_000, (8192, 16384, 32768)),
        (99_999, 99_999, (16384, 32768, 65536)),
    ]:
        rungs = make_rungs(doublings(32, 65536), safe=up_to(safe), possible=up_to(possible))
        assert rungs[-len(largest) :] == largest
