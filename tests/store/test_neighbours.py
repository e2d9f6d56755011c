"""Who waits for whom on one machine: a confirmation runs without neighbours."""

from pathlib import Path

import pytest
from tests_store import ask, case_study, ok, opened, stored, tell

from tuner.records.schema import LEASE
from tuner.store.case_study import CaseStudy
from tuner.store.database import Database
from tuner.store.leases import Lease

OTHER = "demo/add_walk"


@pytest.fixture
def study(database: Database) -> CaseStudy:
    """Return a case whose best a session has measured; its search ends with one trial."""
    return case_study(database)


@pytest.fixture
def other(database: Database) -> CaseStudy:
    """Return another case of the same study, in which another worker probes."""
    return case_study(database, name=OTHER)


def test_the_best_is_confirmed_once_the_neighbours_have_ended(study: CaseStudy, other: CaseStudy) -> None:
    theirs, best = ask(other), ask(study)
    tell(study, best, ok(50.0), warm=True)
    assert not study.awaited_now
    assert study.ask(target=1) is None
    assert len(study.awaited_now) == 1
    tell(other, theirs, ok(50.0))
    assert not study.awaited_now
    confirmation = ask(study, target=1)
    assert (confirmation.confirms, confirmation.choice.cold, confirmation.config) == (True, True, best.config)
    tell(study, confirmation, ok(55.0))
    assert study.ask(target=1) is None
    assert study.incumbent() == 55.0


def test_no_probe_of_a_search_begins_beside_a_confirmation(study: CaseStudy, other: CaseStudy) -> None:
    tell(study, ask(study), ok(50.0), warm=True)
    confirmation = ask(study, target=1)
    assert other.ask(target=None) is None
    assert len(other.awaited_now) == 1
    tell(study, confirmation, ok(50.0))
    assert not other.awaited_now
    assert ask(other).config


def test_a_case_with_nothing_to_confirm_waits_for_no_neighbour(study: CaseStudy, other: CaseStudy) -> None:
    ask(other)
    tell(study, ask(study), ok(50.0))
    assert study.ask(target=1) is None
    assert not study.awaited_now


def test_neighbours_on_other_machines_and_dead_ones_disturb_nobody(
    database: Database, study: CaseStudy, other: CaseStudy
) -> None:
    ask(other)
    ask(other)
    mine = Lease.mine().write()
    elsewhere, dead = mine | {"host": "node7", "boot": "another"}, mine | {"ticks": 1}
    for trial, lease in zip(stored(database, OTHER), (elsewhere, dead), strict=True):
        database.storage.set_trial_user_attr(trial._trial_id, LEASE, lease)
    tell(study, ask(study), ok(50.0), warm=True)
    assert ask(study, target=1).confirms
    assert len(other.awaited_now) == 1  # the living one, elsewhere


def test_a_worker_with_another_clock_keeps_its_trial(url: str, database: Database) -> None:
    """Both hosts' wall clocks are an hour apart; the database's clock is the same for both."""
    theirs = case_study(database)
    ask(theirs)
    (trial,) = stored(database)
    away = trial.user_attrs[LEASE] | {"host": "node7", "boot": "another"}
    database.storage.set_trial_user_attr(trial._trial_id, LEASE, away)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.time", lambda: away["beat"] + 3600.0)
        with opened(url) as other:
            mine = case_study(other)
            assert mine.end_abandoned_trials(Path()) == (0, 0)
            assert ask(mine).config != trial.params
