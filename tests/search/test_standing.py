from dataclasses import replace
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.search.standing import (
    BROKEN_AFTER,
    FAIL,
    PRUNED,
    EndedTrial,
    best,
    eligible,
    fastest,
    incumbent,
    leads,
    ways,
)


def reading(
    trial: int, launch: str, value: float | None, *, warm: bool = False, error: float | None = None
) -> EndedTrial:
    return EndedTrial(trial=trial, launch=launch, warm=warm, values=None if value is None else (value,), error=error)


@st.composite
def histories(draw: st.DrawFn) -> list[EndedTrial]:
    """Return trials of up to four configs."""
    one = st.tuples(st.sampled_from("abcd"), st.integers(0, 5).map(float) | st.none(), st.booleans())
    told = enumerate(draw(st.lists(one, max_size=12)))
    return [reading(trial, launch, value, warm=warm) for trial, (launch, value, warm) in told]


@given(histories())
def test_the_best_has_the_highest_mean_of_its_cold_readings(readings: list[EndedTrial]) -> None:
    means = []
    for launch in "abcd":
        cold = [one.values for one in readings if one.launch == launch and not one.warm]
        if cold and None not in cold:
            means.append(fmean(values[0] for values in cold if values))
    found = best(readings)
    if means:
        assert found is not None
        assert found.values == pytest.approx((max(means),))
    else:
        assert found is None or all(readings[trial].warm for trial in found.trials)


def test_one_lucky_reading_does_not_make_the_best() -> None:
    lucky = [reading(0, "a", 90.0), reading(2, "a", 70.0)]
    found = best([*lucky, reading(1, "b", 85.0)])
    assert found is not None
    assert (found.trials, found.values) == ((1,), (85.0,))


def test_the_earliest_of_equals_is_the_best() -> None:
    found = best([reading(0, "a", 1.0), reading(1, "b", 3.0), reading(2, "a", 5.0)])
    assert found is not None
    assert found.trials == (0, 2)


def test_among_equals_the_fastest_is_the_best() -> None:
    slow, fast, far = (
        replace(reading(trial, launch, value), samples_per_s=speed)
        for trial, (launch, value, speed) in enumerate([("a", 99.995, 10.0), ("b", 99.99, 50.0), ("c", 99.9, 90.0)])
    )
    found = best([slow, fast, far])
    assert found is not None
    assert (found.trials, found.samples_per_s) == ((1,), 50.0)
    found = fastest([slow, fast, far, replace(far, trial=3, samples_per_s=110.0)])
    assert found is not None
    assert (found.trials, found.samples_per_s) == ((2, 3), 100.0)
    assert fastest([reading(0, "a", 1.0)]) is None


def test_a_config_leads_only_alone() -> None:
    first, equal, better = (reading(trial, *one) for trial, one in enumerate([("a", 5.0), ("b", 5.005), ("c", 5.1)]))
    assert leads([first], 5.0)
    assert not leads([first, equal], 5.005)
    assert leads([first, equal, better], 5.1)
    assert not leads([first, equal, better], 5.0)
    assert not leads([], None)


def test_sessions_count_only_where_nothing_was_read_cold() -> None:
    warm = [reading(0, "a", 80.0, warm=True), reading(1, "a", 60.0, warm=True), reading(2, "b", 75.0, warm=True)]
    found = best(warm)
    assert found is not None
    assert found.trials == (2,)
    found = best([*warm, reading(3, "c", 10.0)])
    assert found is not None
    assert found.trials == (3,)


def test_a_config_that_once_could_not_be_the_best_is_none() -> None:
    assert best([reading(0, "a", 80.0), reading(1, "a", None)]) is None
    assert best([reading(0, "a", None), reading(1, "a", 80.0)]) is None


def test_a_cold_measurement_overrules_sessions() -> None:
    told = [reading(0, "a", 80.0, warm=True), reading(1, "b", 70.0, warm=True), reading(2, "a", None)]
    cold, warm = ways(told)
    assert (list(cold), list(warm)) == ([], ["b"])


def test_a_lucky_reading_is_no_more_to_beat_than_its_mean() -> None:
    assert incumbent([reading(0, "a", 90.0), reading(1, "b", 85.0), reading(2, "a", 70.0)]) == 85.0


def test_what_is_to_beat_counts_sessions_until_they_are_measured_cold() -> None:
    told = [reading(0, "a", 80.0, warm=True), reading(1, "b", 70.0, warm=True), reading(2, "c", 60.0)]
    assert incumbent(told) == 80.0
    assert incumbent([*told, reading(3, "a", 50.0)]) == 70.0
    assert incumbent([*told, reading(3, "a", None)]) == 70.0
    assert incumbent([]) is None


def test_errors_shrink_with_readings_that_agree_and_grow_with_their_scatter() -> None:
    cold, _ = ways([reading(0, "a", 60.0, error=1.0), reading(1, "a", 60.0, error=1.0)])
    assert cold["a"].error == pytest.approx(0.5**0.5)
    cold, _ = ways([reading(0, "a", 50.0, error=1.0), reading(1, "a", 70.0, error=1.0)])
    assert cold["a"].error == pytest.approx(10.0)


def failure(trial: int, launch: str, *, warm: bool = False, retry: bool = False) -> EndedTrial:
    return EndedTrial(trial=trial, launch=launch, state=FAIL, warm=warm, retry=retry, failure="crash")


def out_of_memory(trial: int, launch: str, *, warm: bool = False) -> EndedTrial:
    return EndedTrial(trial=trial, launch=launch, state=PRUNED, warm=warm, failure="gpu_oom")


WARM_TWO = [reading(0, "a", 80.0, warm=True), reading(1, "b", 70.0, warm=True)]


UNNAMED = replace(failure(2, "a"), failure=None)
"""A failure without a kind, as an older version stored it."""


@pytest.mark.parametrize(
    "failed", [failure(2, "a"), out_of_memory(2, "a"), UNNAMED], ids=["crash", "out of memory", "unnamed"]
)
def test_what_the_plain_command_fails_on_for_good_is_not_the_best(failed: EndedTrial) -> None:
    found = best([*WARM_TWO, failed])
    assert found is not None
    assert found.trials == (1,)
    assert incumbent([*WARM_TWO, failed]) == 70.0
    assert list(eligible([*WARM_TWO, failed])) == ["b"]


def test_a_cold_success_undoes_earlier_failures_and_a_warm_one_does_not() -> None:
    failed = [*WARM_TWO, failure(2, "a"), out_of_memory(3, "b")]
    assert best([*failed, reading(4, "a", 90.0, warm=True)]) is None
    found = best([*failed, reading(4, "a", 60.0), reading(5, "b", 50.0)])
    assert found is not None
    assert (found.trials, found.values) == ((4,), (60.0,))


def test_readings_on_both_sides_of_a_failure_count_and_one_after_them_rules_them_out() -> None:
    told = [reading(0, "a", 80.0), failure(1, "a"), reading(2, "a", 60.0)]
    found = best(told)
    assert found is not None
    assert (found.trials, found.values) == ((0, 2), (70.0,))
    assert best([*told, failure(3, "a")]) is None


@pytest.mark.parametrize("failed", [failure(2, "a", retry=True), failure(2, "a", warm=True)], ids=["again", "session"])
def test_a_failure_that_the_config_is_not_to_blame_for_says_nothing(failed: EndedTrial) -> None:
    found = best([*WARM_TWO, failed])
    assert found is not None
    assert found.trials == (0,)


def test_out_of_memory_in_a_session_rules_out_what_sessions_read_before() -> None:
    assert list(eligible([*WARM_TWO, out_of_memory(2, "a", warm=True)])) == ["b"]
    assert list(eligible([out_of_memory(0, "a", warm=True), reading(1, "a", 80.0, warm=True)])) == ["a"]
    cold = reading(2, "a", 60.0)
    assert incumbent([WARM_TWO[0], cold, out_of_memory(3, "a", warm=True)]) == 60.0


@pytest.mark.parametrize(("failures", "found"), [(BROKEN_AFTER - 1, False), (BROKEN_AFTER, True)])
def test_failures_of_a_broken_trainer_do_not_count_against_configs(failures: int, found: bool) -> None:
    told = [failure(trial, "a") for trial in range(failures)]
    assert bool(best([*told, reading(10, "a", 80.0, warm=True)])) is found
