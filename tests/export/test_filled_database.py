"""The invented records of the export tests have the form of the store's records."""

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.probe.metrics import measured
from tuner.probe.result import DeviceSummary, Failure, FailureKind, unlaunched
from tuner.records.case_record import CaseRecord
from tuner.records.case_record import encode as encode_case
from tuner.records.schema import CASE, PROBE
from tuner.records.trial import encode
from tuner.search.verdict import judge
from tuner.store.case_study import probe_record
from tuner.study.cases import FILES

if TYPE_CHECKING:
    from conftest import FilledDatabase


def test_a_made_up_probe_holds_what_a_real_one_may(database: "FilledDatabase") -> None:
    walk = database.case("walk")
    database.add(walk, {"num_envs": 8}, utils=(50.0, 60.0))
    database.add(walk, {"num_envs": 16}, status="hang")
    result = unlaunched({}, Failure(kind=FailureKind.HANG, rule="", detail=""), "")
    verdict = judge(result, "min_avg_util", headroom_pct=5.0)
    real = encode(probe_record(result, verdict, None, folder=Path()))
    made_up = [trial.user_attrs[PROBE] for trial in walk.trials]
    assert {name for record in made_up for name in record} <= real.keys()
    assert made_up[0]["metrics"].keys() <= measured(result).keys()
    assert made_up[0]["devices"][0].keys() <= {field.name for field in fields(DeviceSummary)}
    assert made_up[1]["failure"].keys() == {field.name for field in fields(Failure)}


def test_a_made_up_case_holds_what_a_real_one_does(database: "FilledDatabase") -> None:
    made_up = database.case("walk").user_attrs[CASE]
    assert made_up.keys() <= encode_case(CaseRecord(files=dict.fromkeys(FILES, ""))).keys()
