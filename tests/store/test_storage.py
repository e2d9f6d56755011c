"""The storage stands on Optuna's public face, and its SQL on tables that this Optuna makes."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import optuna
import pytest
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import TableClause, event, inspect
from tests_store import NAME, ask, case_study, ok, opened, probe, stored, tell

from tuner.export.reader import StudyReader, connect
from tuner.records import schema as tables
from tuner.store.database import Database
from tuner.store.storage import TrialStorage


def known_tables() -> Iterator[TableClause]:
    yield from (one for one in vars(tables).values() if isinstance(one, TableClause))


def test_the_tables_are_those_of_this_optuna(url: str) -> None:
    """Run with the oldest and the newest Optuna that pyproject.toml allows."""
    study = optuna.create_study(storage=url, study_name=NAME)
    study.optimize(lambda trial: trial.suggest_float("lr", 0.0, 1.0), n_trials=1)
    with opened(url) as database:
        inspector = inspect(database.storage.engine)
        for known in known_tables():
            found = {one["name"] for one in inspector.get_columns(known.name)}
            assert {one.name for one in known.c} <= found, known.name


def test_only_public_methods_of_optuna_are_replaced() -> None:
    theirs = set(dir(BaseStorage)) | set(dir(optuna.storages.RDBStorage))
    ours = {name for name in vars(TrialStorage) if name in theirs and not name.startswith("__")}
    assert "get_all_trials" in ours
    assert not [name for name in ours if name.startswith("_") and name != "_abc_impl"]


def test_optuna_reads_the_same_trials(database: Database, url: str) -> None:
    study = case_study(database)
    probe(study, ok(50.0), 3)
    ask(study)
    theirs = optuna.load_study(study_name=NAME, storage=url).trials
    for one, other in zip(stored(database), theirs, strict=True):
        assert (one.number, one.state, one.params, one.values) == (
            other.number,
            other.state,
            other.params,
            other.values,
        )


def test_what_another_worker_ends_is_seen_though_ended_trials_are_read_once(database: Database, url: str) -> None:
    mine = case_study(database)
    first = ask(mine)
    with opened(url) as other:
        theirs = case_study(other)
        second = ask(theirs)
        tell(mine, first, ok(50.0))
        assert [one.state.name for one in stored(database)] == ["COMPLETE", "RUNNING"]
        assert theirs.history().finished == 1
        tell(theirs, second, ok(60.0))
    assert [one.values for one in stored(database)] == [[50.0], [60.0]]


def test_trials_of_other_states_are_read_once_they_are_asked_for(database: Database) -> None:
    study = case_study(database)
    study_id = database.storage.get_study_id_from_name(NAME)

    def of(state: TrialState) -> list[FrozenTrial]:
        return database.storage.get_all_trials(study_id, states=(state,))

    ended, running = ask(study), ask(study)
    assert of(TrialState.COMPLETE) == []
    tell(study, ended, ok(50.0))
    database.storage.drop_cached_trials()  # as another worker, which has seen no trial begin
    assert [one.params for one in of(TrialState.RUNNING)] == [running.config]
    assert [one.values for one in of(TrialState.COMPLETE)] == [[50.0]]
    assert [one.params for one in stored(database)] == [ended.config, running.config]
    tell(study, running, ok(60.0))
    assert [one.values for one in of(TrialState.COMPLETE)] == [[50.0], [60.0]]


def test_while_a_probe_runs_little_is_read(database: Database) -> None:
    """A remote database takes long for each statement. Optuna needs three to store a report."""
    study = case_study(database)
    probe(study, ok(50.0))
    asked = ask(study)
    sent: list[str] = []
    event.listen(database.storage.engine, "before_cursor_execute", lambda *facts: sent.append(facts[2]))
    assert not study.report(asked, 1, 9.0)
    assert study.incumbent() == 50.0
    assert len(sent) == 3 + 3


@pytest.mark.parametrize("number", [None, "seven"])
def test_a_trial_without_a_number_is_left_out(url: str, number: str | None) -> None:
    with opened(url) as database:
        configs = probe(case_study(database), ok(50.0), 3)
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as other:
        other.execute("update trials set number = ? where number = 1", [number])
        other.commit()
    with opened(url) as database:
        study = case_study(database)
        assert study.history().finished == 2
        assert ask(study).config not in (configs[0], configs[2])
    (case,) = StudyReader(connect(url), "demo").cases
    assert ([one.number for one in case.trials], case.left_out) == ([0, 2, 3], 1)
