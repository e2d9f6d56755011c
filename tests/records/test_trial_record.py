"""What the search reads of a trial: by the record of its probe, or by what another program has stored."""

from typing import Any

import pytest

from tuner.records.schema import COST, ERROR, INELIGIBLE, MEMORY, PROBE
from tuner.records.trial import FAIL, MEMORY_SHARE, RUN_S, RUNNING, START_S, ProbeRecord, attributes, read

RECORD = {"status": "ok", "warm": True, "ready_s": 30.0, "total_s": 70.0, "host": {"devices": "GPU-a"}}
TOOK = {START_S: 30.0, RUN_S: 40.0, MEMORY_SHARE: 0.25}


@pytest.mark.parametrize(
    ("kept", "devices"),
    [
        ({PROBE: {**RECORD, "metrics": {"headroom_pct": 75.0}}}, "GPU-a"),
        ({COST: TOOK}, ""),
        ({PROBE: "not a record", COST: TOOK}, ""),
    ],
    ids=["record", "attribute", "damaged record"],
)
def test_a_probe_with_a_number(kept: dict[str, Any], devices: str) -> None:
    trial = read(kept)
    assert (trial.measured_on, trial.cost, trial.failure, trial.failed_after_start) == (devices, TOOK, None, False)


def test_a_probe_that_failed_has_a_kind_and_no_cost() -> None:
    trial = read({PROBE: {**RECORD, "status": "too_slow"}}, state=FAIL)
    assert (trial.failure, trial.cost, trial.failed_after_start) == ("too_slow", {}, True)


def test_missing_memory_is_a_failure_whatever_else_is_kept() -> None:
    trial = read({}, {MEMORY: 2.0})
    assert (trial.failure, trial.missing_gib) == ("gpu_oom", 2.0)


@pytest.mark.parametrize(
    ("constraints", "ineligible"),
    [
        (None, False),
        ({}, False),
        ({INELIGIBLE: 0.0}, False),
        ({INELIGIBLE: 1.0}, True),
    ],
)
def test_a_config_is_ineligible_by_its_constraint(constraints: dict[str, float] | None, ineligible: bool) -> None:
    assert read({}, constraints).is_barred is ineligible


def test_facts_of_another_form_are_unknown() -> None:
    trial = read({PROBE: {"status": "ok", "host": 5, "total_s": "long", "metrics": [1]}})
    assert (trial.measured_on, trial.total_s, trial.cost, trial.probe.host) == ("", None, {}, {})


def test_a_number_that_nothing_measures_is_unknown() -> None:
    for huge in [1e300, -1e300, 10**30, float("nan")]:
        record = {"status": "ok", "total_s": huge, "start_up_s": huge, "samples_per_s": huge}
        trial = read({PROBE: record, ERROR: huge})
        assert (trial.total_s, trial.cost, trial.samples_per_s, trial.error) == (None, {}, None, None)


def test_a_trial_that_runs_says_nothing() -> None:
    trial = read({}, state=RUNNING)
    assert [trial.status, trial.failure, trial.total_s, trial.origin, trial.error] == [None] * 5
    assert not any([trial.warm, trial.cost, trial.failed_after_start, trial.retry, trial.confirms, trial.is_barred])


def test_what_earlier_versions_counted_beside_a_probe_is_ignored() -> None:
    trial = read({PROBE: {**RECORD, "beside": 3, "end": 75.0, "epochs": 1}})
    assert (trial.status, trial.total_s) == ("ok", 70.0)


def test_what_is_written_of_a_trial_is_read_back() -> None:
    probe = ProbeRecord(config={"num_envs": 8}, digest="d", status="ok", warm=True, total_s=3.0)
    trial = read(attributes(probe, retry=True, error=0.5))
    assert (trial.probe, trial.retry, trial.error, trial.config, trial.launch_key) == (
        probe,
        True,
        0.5,
        {"num_envs": 8},
        "d",
    )
