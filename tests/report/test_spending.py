"""Where the device-seconds of a search went."""

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.probe.kinds import FailureKind
from tuner.probe.result import Failure
from tuner.records.trial import ProbeRecord, TrialRecord
from tuner.report.facts import found_at, spent, steps, waited
from tuner.search.standing import Standing
from tuner.study.space import Config

NOON = datetime(2026, 11, 21, 12)

seconds = st.none() | st.floats(0, 1e4)
probes = st.builds(
    ProbeRecord,
    status=st.sampled_from(["ok", "pruned", "gpu_oom", None]),
    total_s=seconds,
    start_up_s=seconds,
    window_s=seconds,
    failure=st.none() | st.just(Failure(kind=FailureKind.GPU_OOM, rule="r", detail="d")),
)


@given(st.lists(probes, max_size=5), st.integers(1, 8), st.none() | st.integers(0, 5))
def test_no_second_is_counted_twice(probes: list[ProbeRecord], devices: int, found: int | None) -> None:
    trials = [
        TrialRecord(case="c", number=number, state="COMPLETE", probe=probe) for number, probe in enumerate(probes)
    ]
    parts = spent(trials, devices, found)
    assert sum(one.whole_s for one in parts) == pytest.approx(sum(devices * (one.total_s or 0.0) for one in probes))
    assert all(one.whole_s > 0.0 for one in parts)
    if found is None:
        assert not any(one.after_s for one in parts)


def trial(number: int, rung: int, value: float, took_s: float = 60.0, waited_s: float = 0.0) -> TrialRecord:
    config: Config = {"num_envs": rung, "pruner_patience": number % 3}
    return TrialRecord(
        case="c",
        number=number,
        state="COMPLETE",
        config=config,
        values=(value,),
        started=NOON,
        completed=NOON + timedelta(seconds=took_s + waited_s),
        probe=ProbeRecord(status="ok", config=config, total_s=took_s, start_up_s=20.0, window_s=30.0),
    )


def test_the_best_is_found_when_its_config_is_first_measured() -> None:
    trials = [trial(0, 64, 50.0), trial(1, 128, 90.0), trial(2, 64, 51.0), trial(3, 128, 89.0)]
    assert found_at(trials, Standing(trials=(trials[3],), values=(89.5,))) == 1
    parts = {one.what: one for one in spent(trials, 2, 1)}
    assert (parts["window"].until_found_s, parts["window"].after_s) == (120.0, 120.0)
    assert [step.ended_s for step in steps(trials, 2)] == [120.0, 240.0, 360.0, 480.0]
    assert found_at(trials, None) is None


def test_waiting_lies_outside_of_the_probes() -> None:
    assert waited([trial(0, 64, 50.0, waited_s=7.5), trial(1, 64, 50.0)], 2).whole_s == 15.0
    replayed = [trial(0, 64, 50.0, took_s=900.0, waited_s=-899.9)]
    assert waited(replayed, 2).whole_s == 0.0
