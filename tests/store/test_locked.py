"""A program, perhaps the trainer itself, that locks the SQLite file of a study while a probe runs."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tests_store import ask, case_study, ok, opened, stored, tell

from tuner.errors import StoreError
from tuner.records.schema import LEASE
from tuner.store.database import SLICE_S, Database


@contextmanager
def locked(url: str) -> Iterator[None]:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as other:
        other.execute("begin exclusive")
        yield


@pytest.fixture
def impatient(url: str) -> Iterator[Database]:
    """Return a database that waits for its file only twice as long as it waits at a time."""
    database = Database(url, away_s=2 * SLICE_S)
    yield database
    database.close()


def test_a_running_probe_waits_for_nobody(url: str, database: Database) -> None:
    study = case_study(database)
    tell(study, ask(study), ok(40.0))
    asked = ask(study)
    assert study.incumbent() == 40.0
    (*_, trial) = stored(database)
    with locked(url):
        study.renew_lease(asked)
        assert study.report(asked, 1, 5.0) is False
        assert study.incumbent() == 40.0  # as it was known
    tell(study, asked, ok(50.0))
    (*_, told) = stored(database)
    assert (told.state.name, told.value, told.user_attrs[LEASE]) == ("COMPLETE", 50.0, trial.user_attrs[LEASE])


def test_the_next_reports_count(url: str, database: Database) -> None:
    study = case_study(database)
    asked = ask(study)
    with locked(url):
        study.report(asked, 1, 50.0)
    study.report(asked, 1, 60.0)
    (trial,) = stored(database)
    assert trial.intermediate_values == {1: 60.0}


def test_a_result_is_waited_for_and_then_one_sentence_says_what_to_do(url: str, impatient: Database) -> None:
    study = case_study(impatient)
    asked = ask(study)
    with locked(url), pytest.raises(StoreError) as refusal:
        tell(study, asked, ok(50.0))
    file = Path(url.removeprefix("sqlite:///"))
    assert "\n" not in str(refusal.value)
    assert f"another program locks its file and does not let go of it; `fuser {file}`" in str(refusal.value)
    with opened(url) as later:
        assert [one.state.name for one in stored(later)] == ["RUNNING"]
