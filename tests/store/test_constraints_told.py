"""What the store keeps of a verdict, how far a config misses each bound, and the metrics of a default."""

from dataclasses import replace

import pytest
from tests_store import CRASH, OUT_OF_MEMORY, ask, case_study, ok, stored, tell

from tuner.records.schema import INELIGIBLE, MEMORY
from tuner.search.verdict import Verdict
from tuner.store.case_study import CaseStudy
from tuner.store.database import Database


@pytest.fixture
def study(database: Database) -> CaseStudy:
    return case_study(database)


MISSED = {"samples_per_s": 0.25, "headroom_pct": -0.5}


@pytest.mark.parametrize(
    ("verdict", "values", "constraints"),
    [
        (ok(60.0), [60.0], {}),
        (replace(ok(60.0), ineligible="slow", missed=MISSED), [60.0], {INELIGIBLE: 1.0, **MISSED}),
        (OUT_OF_MEMORY, [40.0], {MEMORY: 2.0}),
        (CRASH, None, {}),
    ],
)
def test_a_trial_ends_as_its_verdict_says_and_a_pruned_one_has_its_last_report(
    database: Database, study: CaseStudy, verdict: Verdict, values: list[float] | None, constraints: dict[str, float]
) -> None:
    asked = ask(study)
    study.report(asked, 1, 50.0)
    study.report(asked, 2, 40.0)
    tell(study, asked, verdict)
    (told,) = stored(database)
    assert (told.state, told.values, told.constraints or {}) == (verdict.state, values, constraints)


def test_what_misses_a_constraint_is_no_incumbent(study: CaseStudy) -> None:
    tell(study, ask(study), replace(ok(50.0), ineligible="too few samples", missed=MISSED))
    tell(study, ask(study), ok(40.0))
    assert study.incumbent() == 40.0


def test_the_newest_readings_of_a_config_count_whatever_its_patience(study: CaseStudy) -> None:
    first = ask(study)
    assert study.history().newest(first.config) is None
    tell(study, first, ok(50.0), metrics={"samples_per_s": 900.0})
    patient = {**first.config, "pruner_patience": 2}
    assert patient != first.config
    newest = study.history().newest(patient)
    assert newest
    assert newest.probe.metrics == {"samples_per_s": 900.0}
    assert study.history().newest({**first.config, "num_envs": 8}) is None


def test_a_failed_probe_leaves_no_readings(study: CaseStudy) -> None:
    asked = ask(study)
    tell(study, asked, CRASH)
    assert study.history().newest(asked.config) is None
