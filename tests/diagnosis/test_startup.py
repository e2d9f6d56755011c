import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.tools.diagnosis.study_times import (
    KnownFact,
    Setup,
    StudyRecord,
    TrialEnd,
    TrialTimes,
    estimated_startup,
    with_estimated_startups,
)


def trial(took_s: float, reports: int, startup_s: float | None = None) -> TrialTimes:
    return TrialTimes(
        end=TrialEnd.COMPLETE, began_s=100.0, ended_s=100.0 + took_s, reports=reports, startup_s=startup_s
    )


def study(*trials: TrialTimes, startup_s: float | None = None, is_ours: bool = False) -> StudyRecord:
    told = None if startup_s is None else KnownFact(value=startup_s, source="--startup-seconds")
    return StudyRecord(study="mine", trials=trials, setup=Setup(startup_s=told), is_ours=is_ours)


@given(st.floats(20.0, 100.0), st.floats(1.0, 20.0), st.integers(0, 1000))
def test_the_start_up_is_where_the_line_of_the_durations_begins(startup_s: float, step_s: float, seed: int) -> None:
    drawn = random.Random(seed)
    counts = [drawn.randint(1, 6) for _ in range(60)] + [20] * 5 + [1, 2, 3]
    found = estimated_startup(
        [trial(startup_s * drawn.uniform(0.9, 1.1) + step_s * reports, reports) for reports in counts]
    )
    assert found is not None
    assert found.source.startswith(f"estimated from {len(counts)} trials")
    assert found.value == pytest.approx(startup_s, rel=0.2)


def test_durations_that_do_not_show_it_give_no_start_up() -> None:
    for trials in [
        [trial(45.0 + 10 * reports, reports) for reports in (1, 2, 3)],  # few trials
        [trial(45.0 + 10 * reports, reports) for reports in (1, 2) * 10],  # two points make any line
        [trial(45.0, 0)] * 20,  # nothing reported
        [trial(50.0 - 5 * reports, reports) for reports in (1, 2, 3, 4, 5) * 4],  # more reports take less time
        [trial(45.0 + 100 * (place * 7 % 11), 1 + place % 4) for place in range(20)],  # no line
    ]:
        assert estimated_startup(trials) is None


def test_trials_without_a_start_up() -> None:
    found = estimated_startup([trial(10.0 * reports, reports) for reports in (1, 2, 3, 4, 5) * 4])
    assert found is not None
    assert found.value == pytest.approx(0.0, abs=1e-6)


def test_an_option_goes_before_the_durations_and_a_record_before_an_option() -> None:
    shown = [trial(45.0 + 10 * reports, reports) for reports in (1, 2, 3, 4) * 5]
    read = with_estimated_startups(study(*shown, trial(60.0, 3, startup_s=20.0), startup_s=30.0))
    assert {one.startup_s for one in read.trials} == {30.0, 20.0}
    estimated = with_estimated_startups(study(*shown))
    assert estimated.setup.startup_s is not None
    assert estimated.setup.startup_s.value == pytest.approx(45.0)
    assert estimated.setup.startup_s.source.startswith("estimated from 20 trials")
    assert with_estimated_startups(study(*shown, is_ours=True)).setup.startup_s is None


def test_a_trial_that_ends_during_its_start_up_never_trains() -> None:
    short, long = trial(10.0, 0, startup_s=45.0), trial(60.0, 1, startup_s=45.0)
    assert (short.starting_s, short.training) == (10.0, None)
    assert (long.starting_s, long.training) == (45.0, (145.0, 160.0))
    assert TrialTimes(end=TrialEnd.FAILED, began_s=5.0).took_s == 0.0
