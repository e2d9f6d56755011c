"""What the store keeps about constraints: how far a config misses each bound, and the metrics of a default."""

from dataclasses import replace

import pytest
from tests_store import CRASH, ask, case_study, ok, stored, tell

from tuner.store.case_study import CaseStudy
from tuner.store.database import Database


@pytest.fixture
def study(database: Database) -> CaseStudy:
    return case_study(database)


def test_constraints_are_stored_with_how_far_they_are_missed(database: Database, study: CaseStudy) -> None:
    missed = {"samples_per_s": 0.25, "headroom_pct": -0.5}
    tell(study, ask(study), replace(ok(50.0), ineligible="too few samples", missed=missed))
    tell(study, ask(study), ok(40.0))
    first, second = stored(database)
    assert first.constraints is not None
    assert first.constraints.items() >= missed.items()
    assert not second.constraints
    assert study.history().incumbent == 40.0


def test_the_newest_readings_of_a_config_count_whatever_its_patience(study: CaseStudy) -> None:
    first = ask(study)
    assert study.history().newest(first.config) is None
    tell(study, first, ok(50.0), metrics={"samples_per_s": 900.0})
    patient = {**first.config, "pruner_patience": 2}
    assert patient != first.config
    newest = study.history().newest(patient)
    assert newest
    assert newest.metrics == {"samples_per_s": 900.0}
    assert study.history().newest({**first.config, "num_envs": 8}) is None


def test_a_failed_probe_leaves_no_readings(study: CaseStudy) -> None:
    asked = ask(study)
    tell(study, asked, CRASH)
    assert study.history().newest(asked.config) is None
