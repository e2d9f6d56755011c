"""The records of a probe and of a case survive encoding and decoding. A damaged record counts as missing."""

import json
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.probe.result import DeviceSummary, Failure, FailureKind, ProbeResult
from tuner.records import case_record, trial
from tuner.records.case_record import CaseRecord, RunRecord
from tuner.records.schema import MOST, MOST_CHARACTERS, UNREADABLE, read_json, record_of, storable
from tuner.records.trial import ProbeRecord
from tuner.study.cases import Case

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
WHOLE = st.integers(1 - MOST, MOST - 1)
NUMBERS = st.none() | st.floats(allow_nan=False, allow_infinity=False)
DEVICES = st.builds(DeviceSummary, device=TEXTS, source=st.just("nvml"), util_mean_pct=NUMBERS)
FAILURES = st.builds(Failure, kind=st.sampled_from(FailureKind), rule=TEXTS, detail=TEXTS)
PROBES = st.builds(
    ProbeRecord,
    config=st.dictionaries(TEXTS, WHOLE | st.floats(allow_nan=False, allow_infinity=False) | TEXTS),
    total_s=NUMBERS,
    iterations=st.none() | st.integers(0, 100),
    devices=st.lists(DEVICES, max_size=2).map(tuple),
    failure=st.none() | FAILURES,
    host=st.dictionaries(st.sampled_from(["name", "devices"]), TEXTS),
    warm=st.none() | st.booleans(),
    metrics=st.dictionaries(TEXTS, NUMBERS),
)
CASE = CaseRecord(
    case="walk",
    method="walk",
    mode="train",
    robot=("walker",),
    files={"task": "walk.yaml", "policy": ""},
    trainer={"name": "reference"},
    source="nvml",
    devices=("cuda:0", "cuda:1"),
    objective="min_avg_util",
    defaults=({"num_envs": 8},),
    learning=("batch_size",),
)


@given(PROBES)
def test_a_probe_comes_back_as_it_was(kept: ProbeRecord) -> None:
    document = json.dumps(trial.encode(kept), allow_nan=False)
    assert record_of(ProbeRecord, read_json(document)) == record_of(ProbeRecord, json.loads(document)) == kept


def test_a_probe_keeps_every_field_of_its_result_but_the_score() -> None:
    assert {one.name for one in fields(ProbeResult)} - {one.name for one in fields(ProbeRecord)} == {"score"}


def test_a_number_that_is_not_finite_is_kept_as_unknown() -> None:
    kept = ProbeRecord(total_s=float("nan"), metrics={"energy_j": float("inf"), "window_s": 2.0})
    assert record_of(ProbeRecord, trial.encode(kept)) == ProbeRecord(metrics={"energy_j": None, "window_s": 2.0})


def test_a_number_in_a_text_is_read_as_it_is_kept() -> None:
    for odd in ["NaN", "-Infinity", "1e999", "1e-999", "9" * 30, str(MOST), str(MOST - 1), "1e308"]:
        document = f'{{"samples_per_s": {odd}, "metrics": {{"energy_j": {odd}}}, "status": "ok"}}'
        known = record_of(ProbeRecord, read_json(document))
        assert known
        assert (known.samples_per_s is None) == (odd not in {"1e-999", "1e308", str(MOST - 1)})


def test_a_field_of_another_version_is_left_out() -> None:
    assert record_of(ProbeRecord, {"status": "ok", "invented_later": [1]}) == ProbeRecord(status="ok")


def test_a_damaged_probe_is_none() -> None:
    for damaged in [None, "ok", [], {"total_s": "long"}, {"devices": [{}]}, {"metrics": 5}]:
        assert record_of(ProbeRecord, damaged) is None
        assert record_of(ProbeRecord, read_json(json.dumps(damaged))) is None


def test_a_text_that_is_cut_off_is_none() -> None:
    for document in [None, "", "{", '{"status": "ok']:
        assert record_of(ProbeRecord, read_json(document)) is None


@pytest.mark.parametrize("recording", [None, {"machine": {"cpu": "one"}}])
def test_a_case_comes_back_as_it_was(recording: dict[str, object] | None) -> None:
    kept = replace(CASE, recording=recording)
    assert case_record.decode(json.loads(json.dumps(case_record.encode(kept)))) == kept


def test_a_damaged_case_is_none() -> None:
    for damaged in [None, 5, {"devices": 2}, {"defaults": [1]}, {"agent_config": 3}, {"files": 1}]:
        assert case_record.decode(damaged) is None


def test_a_case_of_an_older_record_has_the_usual_files_and_its_name_says_what_it_is_like() -> None:
    older = case_record.decode({"case": "amp_walk", "method": "amp", "agent_config": "ppo.yaml"})
    assert older is not None
    assert older.files == {"agent_config": "ppo.yaml", "env_config": "", "engine_config": ""}
    assert (
        case_record.known_case("amp_walk", older) == case_record.known_case("amp_walk", None) == Case(name="amp_walk")
    )
    assert case_record.known_case("Walk-v0", CASE) == Case(name="Walk-v0", method="walk", robot=("walker",))


RUN = {"config": {"num_envs": 8}, "seed": 0, "seconds": 60.0, "curve": [[1.0, -5.0], [2.0, 7.0]]}


def test_a_damaged_run_of_a_race_is_none() -> None:
    for damaged in [
        {"seconds": 1e300},
        {"seconds": "long"},
        {"curve": [[1.0, 1e308]]},
        {"curve": [[1.0]]},
        {"config": 5},
    ]:
        known = record_of(RunRecord, RUN)
        assert known
        assert known.curve == ((1.0, -5.0), (2.0, 7.0))
        assert record_of(RunRecord, RUN | damaged) is None


def test_what_no_database_can_store_is_replaced() -> None:
    odd = {"detail": "gr\udcf6sse\0", "count": MOST, "rate": float("inf"), "list": ("\ud800", True)}
    assert storable(odd) == {
        "detail": f"gr{UNREADABLE}sse{UNREADABLE}",
        "count": None,
        "rate": None,
        "list": [UNREADABLE, True],
    }


def test_a_very_long_text_keeps_its_two_ends() -> None:
    kept = storable("a" * MOST_CHARACTERS + "b" * MOST_CHARACTERS)
    assert len(kept) == MOST_CHARACTERS
    assert (kept[:2], kept[-2:]) == ("aa", "bb")
    assert storable("c" * MOST_CHARACTERS) == "c" * MOST_CHARACTERS


@given(st.dictionaries(st.text(), st.integers() | st.floats() | st.text() | st.lists(st.booleans() | st.floats())))
def test_a_text_reads_as_what_is_storable(value: dict[str, object]) -> None:
    assert read_json(json.dumps(value)) == storable(value)


def test_what_is_no_json_reads_as_nothing() -> None:
    for document in [None, "", "{", "[" * 100_000, "nul", b"\xff", 5]:
        assert read_json(document) is None
