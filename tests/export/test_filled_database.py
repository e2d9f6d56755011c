"""The made-up records that the exports are tested on have the form of those that the store keeps."""

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.export.database import connect
from tuner.export.query import StudyReader
from tuner.probe.kinds import FailureKind
from tuner.probe.metrics import measured
from tuner.probe.result import DeviceSummary, Failure, unlaunched
from tuner.search.verdict import judge
from tuner.store.records import case_record, probe_record
from tuner.study.cases import Case

if TYPE_CHECKING:
    from conftest import FilledDatabase


def test_a_made_up_probe_holds_what_a_real_one_may(database: "FilledDatabase") -> None:
    walk = database.case("walk")
    database.add(walk, {"num_envs": 8}, utils=(50.0, 60.0))
    database.add(walk, {"num_envs": 16}, status="hang")
    ok, failed = StudyReader(connect(database.url), "pi_plus").trials()
    result = unlaunched({}, Failure(kind=FailureKind.HANG, rule="", detail=""), "")
    verdict = judge(result, "min_avg_util", headroom_pct=5.0)
    real = probe_record(result, verdict, None, launched=False, folder=Path())
    assert ok.probe.keys() | failed.probe.keys() <= real.keys()
    assert ok.metrics.keys() <= measured(result).keys()
    assert ok.devices[0].keys() <= {field.name for field in fields(DeviceSummary)}
    assert failed.probe["failure"].keys() == {field.name for field in fields(Failure)}


def test_a_made_up_case_holds_what_a_real_one_does(database: "FilledDatabase") -> None:
    database.case("walk")
    (made_up,) = StudyReader(connect(database.url), "pi_plus").cases
    identity = {"trainer": {}, "source": "", "devices": [], "objective": ""}
    assert made_up.facts.keys() <= case_record(Case(name="walk"), identity, defaults=[], learning=[]).keys()
