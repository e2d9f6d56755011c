"""Studies that confirm alone: which probes ran beside others, and who waits for whom on one machine."""

import pytest
from tests_store import ask, case_study, ok, stored, tell

from tuner.kept.names import LEASE
from tuner.search.trials import kept
from tuner.store.database import Database
from tuner.store.leases import Lease
from tuner.store.study import CaseStudy

OTHER = "demo/add_walk"


@pytest.fixture
def study(database: Database) -> CaseStudy:
    return case_study(database, alone=True)


@pytest.fixture
def other(database: Database) -> CaseStudy:
    """Return another case of the same study, in which another worker probes."""
    return case_study(database, alone=True, name=OTHER)


def beside(database: Database) -> list[int | None]:
    """Return how many probes each probe of the case ran beside."""
    records = [database.storage.probe(trial._trial_id) for trial in stored(database)]
    return [record and record.beside for record in records]


def test_a_probe_knows_how_many_ran_beside_it(database: Database, study: CaseStudy, other: CaseStudy) -> None:
    tell(study, ask(study), ok(50.0))
    first = ask(study)
    for _ in range(2):
        tell(other, ask(other), ok(50.0))
    lasting = ask(other)
    tell(study, first, ok(60.0))
    tell(study, ask(study), ok(60.0))
    tell(other, lasting, ok(50.0))
    tell(study, ask(study), ok(60.0))
    assert beside(database) == [0, 3, 1, 0]
    assert [kept(trial).beside for trial in stored(database)] == [False, True, True, False]


def test_the_best_is_confirmed_once_the_neighbours_have_ended(
    database: Database, study: CaseStudy, other: CaseStudy
) -> None:
    theirs, best = ask(other), ask(study)
    tell(study, best, ok(50.0))
    assert study.ask(target=1) is None
    assert len(study.awaited) == 1
    tell(other, theirs, ok(50.0))
    assert not study.awaited
    confirmation = ask(study, target=1)
    assert (confirmation.confirms, confirmation.cold, confirmation.config) == (True, True, best.config)
    tell(study, confirmation, ok(55.0))
    assert study.ask(target=1) is None
    assert beside(database) == [1, 0]
    assert study.incumbent == 55.0


def test_nothing_begins_beside_a_confirmation(study: CaseStudy, other: CaseStudy) -> None:
    theirs = ask(other)
    tell(study, ask(study), ok(50.0))
    tell(other, theirs, ok(50.0))
    confirmation = ask(study, target=1)
    assert other.ask(target=None) is None
    assert len(other.awaited) == 1
    tell(study, confirmation, ok(50.0))
    assert not other.awaited
    assert ask(other).config


def test_a_best_that_ran_alone_is_not_measured_again(study: CaseStudy) -> None:
    tell(study, ask(study), ok(50.0))
    assert study.ask(target=1) is None


def test_neighbours_on_other_machines_and_dead_ones_disturb_nobody(
    database: Database, study: CaseStudy, other: CaseStudy
) -> None:
    ask(other)
    ask(other)
    mine = Lease.mine().write()
    elsewhere, dead = mine | {"host": "node7", "boot": "another"}, mine | {"ticks": 1}
    for trial, lease in zip(stored(database, OTHER), (elsewhere, dead), strict=True):
        database.storage.set_trial_user_attr(trial._trial_id, LEASE, lease)
    assert not study.awaited
    assert len(other.awaited) == 1  # the living one, elsewhere


def test_a_study_that_does_not_ask_for_it_counts_no_neighbours(database: Database) -> None:
    study, other = case_study(database), case_study(database, name=OTHER)
    theirs = ask(other)
    tell(study, ask(study), ok(50.0))
    assert study.ask(target=1) is None
    assert not study.awaited
    assert beside(database) == [None]
    tell(other, theirs, ok(50.0))
