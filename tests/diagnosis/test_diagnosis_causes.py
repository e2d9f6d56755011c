"""Which causes the numbers of a study show. The trials of a study run in turns, `at_once` side by side."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.tools.diagnosis.study_times import KnownFact, Setup, StudyRecord, TrialEnd, TrialTimes, gather, mean_as_fact
from tuner.tools.diagnosis.waits import IdleCause, Kind, causes


def found(
    *trials: tuple[TrialEnd, float, float | None],
    at_once: int = 4,
    ours: bool = False,
    sessions: bool = False,
    **setup: Any,
) -> list[IdleCause]:
    """Return the causes of a study of such trials: their end, seconds and start-up."""
    free_s, times = [0.0] * at_once, []
    for end, took_s, startup_s in trials:
        began_s = min(free_s)
        free_s[free_s.index(began_s)] = began_s + took_s
        times.append(TrialTimes(end=end, began_s=began_s, ended_s=began_s + took_s, startup_s=startup_s))
    known = Setup(**{name: KnownFact(value=value, source="told") for name, value in setup.items()})
    record = StudyRecord(study="mine", trials=tuple(times), setup=known, is_ours=ours, has_sessions=sessions)
    return causes(gather(record))


def kinds(causes: list[IdleCause]) -> list[Kind]:
    return [one.kind for one in causes]


LONG = [(TrialEnd.COMPLETE, 1000.0, 20.0)] * 40
PRUNED = [(TrialEnd.PRUNED, 75.0, 45.0)] * 80
MEMORY: dict[str, Any] = {"memory_used_gib": 12.0, "gpu_memory_gib": 24.0}


def test_long_trials_show_no_cause() -> None:
    assert found(*LONG, loader_workers=4, cores=16, memory_used_gib=20.0, gpu_memory_gib=24.0) == []


def test_pruning_with_start_up() -> None:
    (cause,) = found(*PRUNED, *[(TrialEnd.COMPLETE, 645.0, 45.0)] * 4)
    # 84 start-ups of 45 s are 3,780 s of 80 x 75 + 4 x 645 = 8,580 s; with 45 + 180 s for each pruned one, of 20,580 s
    assert cause.kind is Kind.PRUNING
    assert cause.factor == pytest.approx((1 - 3780 / 20580) / (1 - 3780 / 8580))
    assert cause.gain == cause.factor
    assert "train for at least 3 min 00 s" in cause.change
    assert cause.how.endswith("= 1.46 times")


def test_pruning_without_a_known_start_up_is_not_judged() -> None:
    assert found(*[(TrialEnd.PRUNED, 75.0, None)] * 80) == []


def test_a_trial_need_not_train_longer_than_a_complete_one() -> None:
    (cause, *_) = found(*PRUNED, *[(TrialEnd.COMPLETE, 105.0, 45.0)] * 4)
    assert "train for at least 1 min 00 s" in cause.change


@pytest.mark.parametrize("workers", [2.0, 0.0, 0.3])
def test_few_workers_gain_without_a_bound_because_some_wait_for_storage(workers: float) -> None:
    (cause,) = found(*LONG, loader_workers=workers, cores=12)
    assert (cause.kind, cause.factor, cause.gain) == (Kind.WORKERS, None, None)
    assert "num_workers=3" in cause.change
    assert all(said in cause.how for said in ("wait for storage", "--search"))


def test_numbers_of_workers_are_told_as_a_range_and_with_the_right_plural() -> None:
    times = tuple(TrialTimes(end=TrialEnd.COMPLETE, began_s=at_s, ended_s=at_s + 9.0) for at_s in (0.0, 9.0))

    def of(numbers: list[float], cores: int) -> IdleCause:
        setup = Setup(loader_workers=mean_as_fact(numbers, "database"), cores=KnownFact(value=cores, source="told"))
        return causes(gather(StudyRecord(study="mine", trials=times, setup=setup)))[0]

    assert of([0.0, 0.0, 2.0], 2).why == "A trial has 0 to 2 loader workers, 0.7 in the mean, on 2 cores."
    assert of([1.0, 1.0], 2).why == "A trial has 1 loader worker, on 2 cores."
    assert of([3.0], 1).why == "A trial has 3 loader workers, on 1 core."
    (cause,) = found(*LONG, loader_workers=2, cores=12)
    assert "2 loader workers: 8 for 4 trials, on 12 cores" in cause.why


def test_a_measured_wait_for_data_tells_more_than_workers_cores_and_busy_gpus() -> None:
    (cause,) = found(*LONG, data_wait=0.96, loader_workers=8, cores=12)
    assert (cause.kind, cause.factor, cause.gain) == (Kind.LOADING, pytest.approx(25.0), pytest.approx(25.0))
    assert "wait for the next batch for 96%" in cause.why
    assert "loader workers" in cause.change
    assert found(*LONG, data_wait=0.04, loader_workers=2, cores=12) == []
    ours: dict[str, Any] = {"ours": True, "at_once": 1, "data_wait": 0.96, "duty_pct": 4.0}
    assert kinds(found(*LONG, **ours)) == kinds(found(*LONG, **ours, gpus_per_trial=1)) == [Kind.LOADING]
    loading, idle = found(*LONG, data_wait=0.5, duty_pct=4.9)
    assert (loading.kind, idle.kind) == (Kind.IDLE, Kind.LOADING)
    assert "do not wait for data, the GPUs are 10% busy" in loading.why


def test_ranks_on_the_cpu_are_no_gpus_with_little_to_do() -> None:
    assert found(*LONG, ours=True, duty_pct=11.0) == []


def test_more_workers_than_cores_slow_each_other_down_by_an_unknown_factor() -> None:
    (cause,) = found(*LONG, loader_workers=8, cores=12)
    assert (cause.kind, cause.factor, cause.gain) == (Kind.CROWDED, None, None)
    assert "num_workers=3" in cause.change
    assert "not where they wait for storage" in cause.how


def test_memory_has_room_for_more_trials_as_far_as_cores_reach() -> None:
    (cause,) = found(*LONG, **MEMORY)
    assert (cause.kind, cause.factor) == (Kind.PARALLEL, 7 / 4)
    (cause,) = found(*LONG, **MEMORY, loader_workers=3, cores=15)
    assert (cause.kind, cause.factor) == (Kind.PARALLEL, 5 / 4)
    assert found(*LONG, **MEMORY, loader_workers=3, cores=12) == []


def test_idle_gpus_have_room_for_more_trials() -> None:
    (cause,) = found(*LONG, at_once=2, gpus=8)
    assert (cause.kind, cause.factor) == (Kind.PARALLEL, 4.0)


def test_a_probe_of_ours_has_its_gpus_for_itself() -> None:
    assert found(*LONG, **MEMORY, ours=True) == []


def test_failed_trials_that_take_much_time() -> None:
    (cause,) = found(*LONG, *[(TrialEnd.FAILED, 1000.0, 20.0)] * 10)
    assert (cause.kind, cause.factor) == (Kind.FAILURES, pytest.approx(50 / 40))


def test_long_start_ups_of_complete_trials() -> None:
    (cause,) = found(*[(TrialEnd.COMPLETE, 100.0, 40.0)] * 10)
    assert (cause.kind, cause.factor) == (Kind.STARTUP, pytest.approx(100 / 60))
    (ours,) = found(*[(TrialEnd.COMPLETE, 100.0, 40.0)] * 10, ours=True)
    assert "docs/sessions.md" in ours.change
    (in_sessions,) = found(*[(TrialEnd.COMPLETE, 100.0, 40.0)] * 10, ours=True, sessions=True)
    assert (in_sessions.kind, "each session" in in_sessions.change) == (Kind.STARTUP, True)


def test_gpus_with_little_to_do_are_a_cause_where_nothing_else_tells_why() -> None:
    on_gpus: dict[str, Any] = {"ours": True, "gpus_per_trial": 1}
    (cause,) = found(*[(TrialEnd.COMPLETE, 1000.0, 100.0)] * 10, **on_gpus, duty_pct=18.0)
    assert cause.kind is Kind.IDLE
    assert cause.gain == pytest.approx(5.0)
    assert "20% busy" in cause.why
    (rounded,) = found(*[(TrialEnd.COMPLETE, 1000.0, 100.0)] * 10, **on_gpus, duty_pct=1.23)
    assert "1.23% busy / 0.9" in rounded.how
    assert rounded.how.endswith("100 / 1.37 = 73.17 times")
    assert kinds(found(*LONG, **MEMORY, duty_pct=19.0)) == [Kind.PARALLEL]
    assert found(*LONG, duty_pct=60.0) == []


def test_no_change_gains_more_than_the_gpus_have_room_for() -> None:
    parallel, workers = found(*LONG, **MEMORY, loader_workers=2, cores=12, duty_pct=83.0)
    assert (workers.kind, parallel.kind) == (Kind.WORKERS, Kind.PARALLEL)
    assert workers.gain == parallel.gain == pytest.approx(100 / 83)
    assert workers.how.endswith("GPUs that are 83% busy have room for 100 / 83 = 1.20 times")
    assert found(*LONG, **MEMORY, loader_workers=2, cores=12, duty_pct=96.0) == []


def test_trials_without_times_show_nothing() -> None:
    trials = tuple(TrialTimes(end=end, startup_s=45.0) for end in TrialEnd)
    record = StudyRecord(study="mine", trials=trials)
    facts = gather(record)
    assert (facts.trial_s, facts.running_at_once, facts.startup_share) == (0.0, None, None)
    assert causes(facts) == []


TRIALS = st.lists(
    st.tuples(st.sampled_from(TrialEnd), st.floats(0.0, 5000.0), st.none() | st.floats(0.0, 500.0)),
    min_size=1,
    max_size=20,
)
SETUPS = st.fixed_dictionaries(
    {},
    optional={
        "loader_workers": st.floats(0.0, 64.0),
        "cores": st.integers(1, 256),
        "gpus": st.integers(1, 16),
        "duty_pct": st.floats(1.0, 100.0),
        "memory_used_gib": st.floats(0.1, 200.0),
        "gpu_memory_gib": st.floats(0.1, 200.0),
    },
)


@given(TRIALS, SETUPS, st.integers(1, 8))
def test_the_causes_of_any_study_are_worth_while_and_in_order(
    trials: list[tuple[TrialEnd, float, float | None]], setup: dict[str, Any], at_once: int
) -> None:
    listed = found(*trials, at_once=at_once, **setup)
    most = 100 / setup["duty_pct"] + 1e-9 if "duty_pct" in setup else math.inf
    factors = [one.factor or 0.0 for one in listed]
    assert factors == sorted(factors, reverse=True)
    for one in listed:
        assert one.gain is None or 1.1 <= one.gain <= most
        assert len(kinds(listed)) == len(set(kinds(listed)))


def spaced(gaps_s: list[float], took_s: float = 100.0, **setup: Any) -> list[IdleCause]:
    """Return the causes of a study whose trials run one after the other, with these gaps between."""
    at_s, times = 0.0, []
    for gap_s in (*gaps_s, 0.0):
        times.append(TrialTimes(end=TrialEnd.COMPLETE, began_s=at_s, ended_s=at_s + took_s, startup_s=1.0))
        at_s += took_s + gap_s
    known = Setup(**{name: KnownFact(value=value, source="told") for name, value in setup.items()})
    record = StudyRecord(study="mine", trials=tuple(times), setup=known)
    return causes(gather(record))


@pytest.mark.parametrize("gaps_s", [[0.0, 0.0, 9360.0, 0.0], [9360.0], [2.0, 2.5, 3.0, 300.0, 2.0, 420.0, 1.0, 2.0]])
def test_a_gap_far_longer_than_the_usual_one_is_a_pause_and_no_cause(gaps_s: list[float]) -> None:
    assert spaced(gaps_s) == []


def test_waits_after_each_trial_are_a_cause_and_pauses_are_set_apart() -> None:
    (each,) = spaced([30.0] * 4 + [9360.0] + [30.0] * 5)
    assert (each.kind, each.gain) == (Kind.GAPS, pytest.approx(1370 / 1100))
    assert "in 9 gaps, the longest for 30.0 s" in each.why
    assert "2 h 36 min" in each.why
    assert "begin the next trial at once" in each.change
    (third,) = spaced([0.0, 0.0, 120.0] * 5)  # a copy after each third trial
    assert (third.kind, third.gain) == (Kind.GAPS, pytest.approx(2200 / 1600))
    assert spaced([5.0] * 9) == []


def test_trials_that_use_all_gpus_are_a_cause_and_no_room_for_one_trial_on_each() -> None:
    (whole,) = spaced([0.0] * 9, gpus=8, gpus_per_trial=8)
    assert (whole.kind, whole.gain) == (Kind.ALL_GPUS, None)
    assert "Each trial uses all 8 GPUs" in whole.why
    (half,) = spaced([0.0] * 9, gpus=8, gpus_per_trial=4)
    assert (half.kind, half.gain) == (Kind.PARALLEL, 2.0)
    assert "8 GPUs / 4 of a trial = 2 trials" in half.how
    assert spaced([0.0] * 9, gpus=1, gpus_per_trial=1) == []
    assert spaced([0.0] * 9, gpus=8, gpus_per_trial=8, duty_pct=97.0) == []


def test_probes_of_ours_on_some_of_the_gpus_leave_room_for_more() -> None:
    (cause,) = found(*LONG, at_once=1, ours=True, gpus=8, gpus_per_trial=2)
    assert (cause.kind, cause.gain) == (Kind.PARALLEL, 4.0)
    assert cause.change == "`tuner optimize --gpus-per-trial 2` probes 4 configs at once"
    (whole,) = found(*LONG, at_once=1, ours=True, gpus=2, gpus_per_trial=2)
    assert (whole.kind, "--gpus-per-trial 1" in whole.change) == (Kind.ALL_GPUS, True)


def test_threads_of_one_process_are_a_cause_and_more_trials_are_to_be_processes() -> None:
    (threads,) = found(*LONG, n_jobs=4)
    assert (threads.kind, threads.gain) == (Kind.THREADS, None)
    assert "start 4 processes on the same storage, each with n_jobs=1" in threads.change
    assert found(*LONG, n_jobs=1) == []
    assert found(*LONG, n_jobs=4, duty_pct=96.0) == []
    more, _ = found(*LONG, n_jobs=4, **MEMORY)
    assert (more.kind, "as processes instead of threads (n_jobs)" in more.change) == (Kind.PARALLEL, True)
