from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tuner.probe.result import DeviceSummary
from tuner.records.trial import FAIL, PRUNED_STATE, ProbeRecord, SoakSettings, TrialRecord
from tuner.search.standing import (
    BROKEN_AFTER,
    Standing,
    all_measured,
    best,
    cold_and_warm,
    eligible,
    fastest,
    incumbent,
    leader,
    rival,
)
from tuner.study.space import Config


def reading(
    trial: int,
    launch: str,
    value: float | None,
    *,
    warm: bool = False,
    error: float | None = None,
    speed: float | None = None,
    speed_error: float | None = None,
    memory: float | None = None,
    delayed: float | None = None,
    config: Config | None = None,
) -> TrialRecord:
    """Return a complete trial; `memory` and `delayed` are shares of a device's memory and of the time, in percent."""
    device = DeviceSummary(device="x", source="y", util_mean_pct=None, delayed_mean_pct=delayed)
    devices = (replace(device, mem_peak_mib=memory, mem_total_mib=100.0),)
    probe = ProbeRecord(
        digest=launch, status="ok", warm=warm, samples_per_s=speed, samples_per_s_se=speed_error, devices=devices
    )
    values = () if value is None else (value,)
    return TrialRecord(number=trial, values=values, error=error, probe=probe, config=config or {})


def numbers(one: Standing | None) -> tuple[int, ...]:
    return tuple(trial.number for trial in one.trials) if one else ()


@st.composite
def histories(draw: st.DrawFn) -> list[TrialRecord]:
    """Return trials of up to four configs."""
    one = st.tuples(st.sampled_from("abcd"), st.integers(0, 5).map(float) | st.none(), st.booleans())
    told = enumerate(draw(st.lists(one, max_size=12)))
    return [reading(trial, launch, value, warm=warm) for trial, (launch, value, warm) in told]


@given(histories())
def test_the_best_has_the_highest_mean_of_its_cold_readings(readings: list[TrialRecord]) -> None:
    means = []
    for launch in "abcd":
        cold = [one.values or None for one in readings if one.launch_key == launch and not one.warm]
        if cold and None not in cold:
            means.append(fmean(values[0] for values in cold if values))
    found = best(readings)
    if means:
        assert found is not None
        assert found.values == pytest.approx((max(means),))
    else:
        assert found is None or all(trial.warm for trial in found.trials)


def test_one_lucky_reading_does_not_make_the_best() -> None:
    lucky = [reading(0, "a", 90.0), reading(2, "a", 70.0)]
    found = best([*lucky, reading(1, "b", 95.0)])
    assert found is not None
    assert (numbers(found), found.values) == ((1,), (95.0,))


def test_within_the_error_more_samples_win_and_the_choice_says_what_was_given_up() -> None:
    high = reading(0, "a", 97.63, error=0.39, speed=13390.0)
    fast = reading(1, "b", 97.60, error=0.32, speed=25556.0)
    found = leader([high, fast])
    assert found is not None
    assert (numbers(found.best), numbers(found.instead_of), found.unconfirmed) == ((1,), (0,), None)
    clearly = leader([replace(high, values=(98.5,)), fast])
    assert clearly is not None
    assert (numbers(clearly.best), clearly.instead_of) == ((0,), None)


def test_of_equally_fast_ones_less_memory_wins_and_then_the_nearest_to_the_default() -> None:
    far: Config = {"num_envs": 8, "batch": 4}
    near: Config = {"num_envs": 8, "batch": 2}
    same: dict[str, Any] = {"error": 1.0, "speed": 100.0, "speed_error": 2.0}
    large = reading(0, "a", 90.0, memory=80.0, config=near, **same)
    small = reading(1, "b", 90.5, memory=40.0, config=far, error=1.0, speed=99.0, speed_error=2.0)
    assert numbers(best([large, small], [near])) == (1,)
    equal = reading(2, "c", 90.0, memory=40.0, config=near, **same)
    assert numbers(best([large, small, equal], [near])) == (2,)


@pytest.mark.parametrize(("value", "chosen"), [(1986.0, 0), (2400.0, 1)])
def test_where_speed_is_the_objective_a_command_changes_only_for_a_gain(value: float, chosen: int) -> None:
    own: Config = {"workers": 0}
    other: Config = {"workers": 2}
    readings = [
        reading(0, "own", 1921.0, speed=1921.0, error=99.0, speed_error=99.0, memory=4.0, config=own),
        reading(1, "other", value, speed=value, error=111.0, speed_error=111.0, memory=2.0, config=other),
    ]
    found = leader(readings, [own])
    assert found is not None
    assert numbers(found.best) == (chosen,)
    assert numbers(found.instead_of) == (() if chosen else (1,))


def test_a_change_within_its_error_is_no_change() -> None:
    own: Config = {"workers": 0, "amp": False}

    def run(number: int, config: Config, speed: float, error: float) -> TrialRecord:
        return reading(number, str(config), speed, speed=speed, error=error, speed_error=error, config=config)

    ignored = [run(0, own, 14.5, 0.3), run(1, {**own, "amp": True}, 16.9, 1.3)]
    assert numbers(best(ignored, [own])) == (0,)
    loaded = run(2, {**own, "workers": 4}, 40.0, 0.5)
    both = run(3, {"workers": 4, "amp": True}, 40.4, 0.5)
    assert numbers(best([*ignored, loaded, both], [own])) == (2,)


def test_a_config_that_another_one_beats_in_both_is_no_tie() -> None:
    top, precise = reading(0, "a", 95.0, error=0.1, speed=10.0), reading(1, "b", 94.0, error=0.1, speed=30.0)
    vague = reading(2, "c", 93.0, error=5.0, speed=20.0)
    assert numbers(best([top, precise, vague])) == (0,)


ONES = st.tuples(
    st.sampled_from("abcde"),
    st.integers(0, 9).map(float),
    st.booleans(),
    st.integers(0, 3).map(float),
    st.integers(1, 5).map(float),
)


@given(st.lists(ONES, min_size=1, max_size=12))
def test_no_best_is_beaten_in_both_by_a_config_measured_in_the_same_way(
    told: list[tuple[str, float, bool, float, float]],
) -> None:
    trials = [
        reading(number, launch, value, warm=warm, error=error, speed=speed)
        for number, (launch, value, warm, error, speed) in enumerate(told)
    ]
    found = leader(trials)
    assert found is not None
    cold, warm = cold_and_warm(trials)
    way = warm if found.best.is_warm else cold
    for other in way.values():
        if other.launch_key in cold and found.best.is_warm:
            continue  # the plain command has measured it, and decides
        assert not (other.value > found.best.value and (other.samples_per_s or 0) > (found.best.samples_per_s or 0))
    assert (found.unconfirmed is not None) >= found.best.is_warm


def test_an_offset_between_sessions_and_the_plain_command_is_taken_off_with_its_error() -> None:
    both = [
        reading(trial, launch, value, warm=warm, error=0.5, speed=1.0)
        for trial, (launch, value, warm) in enumerate(
            [("a", 90.0, True), ("a", 80.0, False), ("b", 86.0, True), ("b", 74.0, False)]
        )
    ]
    as_read = leader([*both, reading(4, "c", 91.0, warm=True, error=0.5)])
    assert as_read is not None
    assert (numbers(as_read.best), as_read.unconfirmed) == ((1,), None)  # 91 - 11 is no more than 80 and the errors
    higher = leader([*both, reading(4, "c", 95.0, warm=True, error=0.5)])
    assert higher is not None
    assert (numbers(higher.best), numbers(higher.unconfirmed)) == ((1,), (4,))


def test_a_config_that_beats_the_best_in_both_in_sessions_is_named_and_unconfirmed() -> None:
    best_one = [reading(0, "a", 90.0, warm=True, speed=10.0), reading(1, "a", 75.0, speed=10.0)]
    better = reading(2, "b", 90.5, warm=True, speed=12.0)
    found = leader([*best_one, better])
    assert found is not None
    assert (numbers(found.best), numbers(found.unconfirmed)) == ((2,), (2,))
    refuted = leader([*best_one, better, reading(3, "b", 70.0, speed=12.0)])
    assert refuted is not None
    assert (numbers(refuted.best), refuted.unconfirmed) == ((1,), None)


def test_a_rival_makes_far_more_samples_than_the_best() -> None:
    slow, fast = reading(0, "a", 95.0, speed=100.0), reading(1, "b", 40.0, speed=149.0)
    known = all_measured([slow, fast])
    assert rival(known[0], known) is None
    known = all_measured([slow, replace(fast, probe=replace(fast.probe, samples_per_s=150.0))])
    assert numbers(rival(known[0], known)) == (1,)
    assert numbers(fastest(known)) == (1,)
    assert fastest(all_measured([reading(0, "a", 1.0)])) is None


def test_a_config_that_may_not_be_the_best_is_measured_and_no_rival() -> None:
    barred = replace(reading(1, "b", 99.0, speed=900.0), is_barred=True)
    known = all_measured([reading(0, "a", 50.0, speed=10.0), barred])
    assert [one.is_eligible for one in known] == [True, False]
    assert rival(known[0], known) is None


def test_sessions_count_only_where_nothing_was_read_cold() -> None:
    warm = [reading(0, "a", 80.0, warm=True), reading(1, "a", 60.0, warm=True), reading(2, "b", 75.0, warm=True)]
    found = best(warm)
    assert found is not None
    assert numbers(found) == (2,)
    found = best([*warm, reading(3, "c", 10.0)])
    assert found is not None
    assert numbers(found) == (3,)


def test_a_config_that_once_could_not_be_the_best_is_none() -> None:
    assert best([reading(0, "a", 80.0), reading(1, "a", None)]) is None
    assert best([reading(0, "a", None), reading(1, "a", 80.0)]) is None


def test_once_memory_has_not_lasted_soaks_compare_the_configs_whose_memory_lasts() -> None:
    probes = [reading(0, "small", 40.0), reading(1, "large", 86.0)]
    too_large = reading(2, "large", None)
    lasting = [reading(3, "small", 25.0), reading(4, "middle", 35.0)]  # slower: they provoke evaluations
    found = best([*probes, *(replace(one, soak=SoakSettings()) for one in (too_large, *lasting))])
    assert numbers(found) == (4,)


def test_a_cold_measurement_overrules_sessions() -> None:
    told = [reading(0, "a", 80.0, warm=True), reading(1, "b", 70.0, warm=True), reading(2, "a", None)]
    cold, warm = cold_and_warm(told)
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
    cold, _ = cold_and_warm([reading(0, "a", 60.0, error=1.0), reading(1, "a", 60.0, error=1.0)])
    assert cold["a"].error == pytest.approx(0.5**0.5)
    cold, _ = cold_and_warm([reading(0, "a", 50.0, error=1.0), reading(1, "a", 70.0, error=1.0)])
    assert cold["a"].error == pytest.approx(10.0)


@given(st.floats(0.0, 100.0))
@example(100.0)
def test_readings_beside_others_are_told_with_what_a_quiet_machine_may_measure(delayed: float) -> None:
    once = reading(0, "a", 60.0, error=1.0, speed=30.0, speed_error=0.5, delayed=delayed)
    (alone,) = all_measured([once])
    (again,) = all_measured([once, replace(once, number=1)])
    assert alone.widened_error is not None
    assert again.widened_error is not None
    assert 1.0 <= alone.widened_error < 7.0 * 60.0
    assert (alone.widened_error > 1.0) is (delayed >= 2.0)
    assert alone.widened_speed_error == pytest.approx(alone.widened_error / 2.0)
    assert again.widened_speed_error == pytest.approx(again.widened_error / 2.0)
    # another reading reduces the scatter, and not what disturbs both alike
    assert (alone.error, again.error) == (1.0, pytest.approx(0.5**0.5))
    assert alone.widened_error**2 - again.widened_error**2 == pytest.approx(0.5)


def failure(trial: int, launch: str, *, warm: bool = False, retry: bool = False) -> TrialRecord:
    return TrialRecord(
        number=trial, state=FAIL, retry=retry, probe=ProbeRecord(digest=launch, status="crash", warm=warm)
    )


def out_of_memory(trial: int, launch: str, *, warm: bool = False) -> TrialRecord:
    return TrialRecord(number=trial, state=PRUNED_STATE, probe=ProbeRecord(digest=launch, status="gpu_oom", warm=warm))


WARM_TWO = [reading(0, "a", 80.0, warm=True), reading(1, "b", 70.0, warm=True)]


UNNAMED = TrialRecord(number=2, state=FAIL, probe=ProbeRecord(digest="a"))
"""A failure without a kind, as an older version stored it."""


@pytest.mark.parametrize(
    "failed", [failure(2, "a"), out_of_memory(2, "a"), UNNAMED], ids=["crash", "out of memory", "unnamed"]
)
def test_what_the_plain_command_fails_on_for_good_is_not_the_best(failed: TrialRecord) -> None:
    found = best([*WARM_TWO, failed])
    assert found is not None
    assert numbers(found) == (1,)
    assert incumbent([*WARM_TWO, failed]) == 70.0
    assert list(eligible([*WARM_TWO, failed])) == ["b"]


def test_a_cold_success_undoes_earlier_failures_and_a_warm_one_does_not() -> None:
    failed = [*WARM_TWO, failure(2, "a"), out_of_memory(3, "b")]
    assert best([*failed, reading(4, "a", 90.0, warm=True)]) is None
    found = best([*failed, reading(4, "a", 60.0), reading(5, "b", 50.0)])
    assert found is not None
    assert (numbers(found), found.values) == ((4,), (60.0,))


def test_readings_on_both_sides_of_a_failure_count_and_one_after_them_rules_them_out() -> None:
    told = [reading(0, "a", 80.0), failure(1, "a"), reading(2, "a", 60.0)]
    found = best(told)
    assert found is not None
    assert (numbers(found), found.values) == ((0, 2), (70.0,))
    assert best([*told, failure(3, "a")]) is None


@pytest.mark.parametrize("failed", [failure(2, "a", retry=True), failure(2, "a", warm=True)], ids=["again", "session"])
def test_a_failure_that_the_config_is_not_to_blame_for_says_nothing(failed: TrialRecord) -> None:
    found = best([*WARM_TWO, failed])
    assert found is not None
    assert numbers(found) == (0,)


def test_out_of_memory_in_a_session_rules_out_what_sessions_read_before() -> None:
    assert list(eligible([*WARM_TWO, out_of_memory(2, "a", warm=True)])) == ["b"]
    assert list(eligible([out_of_memory(0, "a", warm=True), reading(1, "a", 80.0, warm=True)])) == ["a"]
    cold = reading(2, "a", 60.0)
    assert incumbent([WARM_TWO[0], cold, out_of_memory(3, "a", warm=True)]) == 60.0


@pytest.mark.parametrize(("failures", "found"), [(BROKEN_AFTER - 1, False), (BROKEN_AFTER, True)])
def test_failures_of_a_broken_trainer_do_not_count_against_configs(failures: int, found: bool) -> None:
    told = [failure(trial, "a") for trial in range(failures)]
    assert bool(best([*told, reading(10, "a", 80.0, warm=True)])) is found


def told(trial: int, launch: str, ladder: str, config: Config) -> TrialRecord:
    probe = ProbeRecord(digest=launch, status="host_oom")
    return TrialRecord(number=trial, state=PRUNED_STATE, probe=probe, config=config, grows_with=ladder)


def test_what_a_person_tells_of_a_training_bars_all_that_need_as_much() -> None:
    for ladder, config, memory, may_be_best in [
        ("size", {"size": 64, "half": True}, 10.0, False),  # a larger rung, whatever its probe needed
        ("size", {"size": 32, "half": True}, 59.0, False),  # as much
        ("size", {"size": 32, "half": True}, 40.0, True),
        ("size", {"size": 32, "half": True}, None, False),
        ("size", {"size": 16, "half": True}, 60.5, True),
        ("size", {"size": 16, "half": True}, 90.0, False),
        ("", {"size": 64, "half": False}, 80.0, False),
        ("", {"size": 64, "half": False}, 50.0, True),
        ("", {"size": 16, "half": False}, None, True),
    ]:
        known = {"size": 32, "half": False}
        trials = [
            reading(0, "known", 5.0, memory=60.0, config=known),
            reading(1, "other", 9.0, memory=memory, config=config),
        ]
        found = eligible([*trials, told(2, "known", ladder, known)])
        assert set(found) == ({"other"} if may_be_best else set())
