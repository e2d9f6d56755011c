from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.records.case_record import RunRecord
from tuner.search.scores import MOST_POINTS, Lead, are_constant, lead_of, means, score_at, standings, thinned


def run(seed: int, score: float, *, seconds: float = 10.0, failure: str | None = None) -> RunRecord:
    return RunRecord(config={}, seed=seed, seconds=seconds, trained_s=seconds, curve=((0.0, score),), failure=failure)


def test_a_score_holds_until_the_next_and_the_last_quarter_counts() -> None:
    curve = [(0.0, 100.0), (60.0, 1.0), (90.0, 3.0)]
    assert score_at(curve, 100.0) == pytest.approx((15 * 1.0 + 10 * 3.0) / 25)
    assert score_at(curve, 50.0) == 100.0


def test_a_time_before_the_first_score_has_none() -> None:
    assert score_at([(5.0, 1.0)], 4.0) is None
    assert score_at([], 4.0) is None


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(-5, 5)), min_size=1).map(sorted), st.floats(0.1, 200))
def test_a_mean_score_lies_among_the_scores(curve: list[tuple[float, float]], seconds: float) -> None:
    found = score_at(curve, seconds)
    values = [score for at, score in curve if at <= seconds]
    assert (found is None) == (not values)
    if found is not None:
        assert min(values) - 1e-9 <= found <= max(values) + 1e-9


def test_each_mean_has_its_own_error_and_two_means_share_their_variance() -> None:
    runs = {0: [run(0, 1.0), run(1, 3.0)], 1: [run(0, 10.0), run(1, 10.0)], 2: [run(0, 5.0)]}
    runs[3] = [run(0, -900.0), run(1, -900.0)]
    found = means(runs, 10.0)
    assert [one.value for one in found.values()] == [2.0, 10.0, 5.0, -900.0]
    assert [one.error for one in found.values()] == [pytest.approx(1.0), 0.0, None, 0.0]
    assert lead_of(found[1], found[0]) == Lead(errors=8.0, freedom=2)
    assert lead_of(found[2], found[0]) == Lead(errors=3.0 / 3.0**0.5, freedom=1)
    assert lead_of(found[1], found[3]) is None


def test_returns_that_never_change_say_nothing() -> None:
    for scores, is_constant in [
        ([[0, 0, 0], [0, 0]], True),
        ([[0], [0]], True),
        ([[3, 3], [4, 4, 4]], True),
        ([[3], [4]], False),
        ([[3, 3], []], True),
        ([[0, 0], [0, 0.1]], False),
    ]:
        assert are_constant([[(float(at), score) for at, score in enumerate(one)] for one in scores]) is is_constant


def test_short_and_failed_runs_do_not_count_and_one_seed_has_no_error() -> None:
    failed = [run(0, 9.0), run(1, 9.0, failure="crash: it broke")]
    found = means({0: [run(0, 1.0), run(1, 9.0, seconds=5.0)], 1: failed}, 10.0)
    assert (found[0].value, found[0].error, found[0].runs) == (1.0, None, 1)
    assert [(one.entrant, one.mean is None) for one in standings({1: failed, 0: [run(0, 1.0)]})] == [
        (0, False),
        (1, True),
    ]
    assert lead_of(found[0], found[0]) is None


def test_a_seed_counts_once_and_a_run_that_ended_early_does_not_count() -> None:
    early = replace(run(1, 120.0), trained_s=2.0)
    found = means({0: [run(0, 1.0), run(0, 1.0), run(0, 3.0, seconds=20.0), early]}, 10.0)
    assert (found[0].value, found[0].runs) == (3.0, 1)


def test_a_long_curve_keeps_its_mean_and_few_points() -> None:
    curve = [(float(at), float(at % 7)) for at in range(MOST_POINTS * 7)]
    kept = thinned(curve)
    assert len(kept) <= MOST_POINTS
    assert sum(score for _, score in kept) / len(kept) == pytest.approx(3.0)
    assert thinned(curve[:5]) == tuple(curve[:5])
