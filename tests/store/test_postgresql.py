"""The store on a PostgreSQL server, with several workers: trials begin, end, are resumed, repeated and exported."""

from pathlib import Path

import pandas as pd
import pytest
from sqlalchemy import create_engine, text
from tests_space import USUAL
from tests_store import OUT_OF_MEMORY, RETRY, Team, ask, case_study, identity, ok, opened, probe, repeats, states, tell

from tuner.errors import StoreError
from tuner.export.reader import StudyReader, connect
from tuner.export.tables import export_study
from tuner.records.case_record import CaseRecord
from tuner.records.schema import UNREADABLE
from tuner.records.trial import ProbeRecord
from tuner.store.database import Database

pytestmark = pytest.mark.early


@pytest.fixture
def server(postgresql_server: str) -> str:
    return postgresql_server


def test_workers_side_by_side_share_the_work_and_what_they_drop_is_taken_back(
    workers: Team, server: str, tmp_path: Path
) -> None:
    with workers(server, 2) as started:
        for worker in started:
            worker.send("probe 6")
        asked = [config for worker in started for config in worker.answer()]
        for worker in started:
            worker.send("ask")
        dropped = [worker.answer() for worker in started]
        started[0].kill()
        assert not repeats(asked + dropped)
        with opened(server) as database:
            study = case_study(database)
            assert (study.end_abandoned_trials(tmp_path), study.history().running) == ((0, 1), 1)
            assert states(database) == {"COMPLETE": 12, "FAIL": 1, "RUNNING": 1}
            assert ask(study).config == dropped[0]


def test_a_study_begins_ends_and_resumes_trials_and_refuses_other_settings(server: str) -> None:
    name = "other/amp_walk"
    with opened(server) as database:
        study = case_study(database, name=name)
        assert probe(study, OUT_OF_MEMORY) == USUAL.start_configs(2)[:1]
        asked = ask(study)
        assert study.report(asked, 1, 50.0) is False
        tell(study, asked, RETRY)
    with opened(server) as database:
        study = case_study(database, name=name)
        again = ask(study)
        assert (again.config, again.attempt) == (asked.config, 2)
        tell(study, again, ok(61.5))
        assert (study.history().finished, study.history().running, study.incumbent()) == (2, 0, 61.5)
        assert states(database, name) == {"PRUNED": 1, "FAIL": 1, "COMPLETE": 1}
        with pytest.raises(StoreError, match="pruner: was"):
            case_study(database, name=name, known=identity(pruner=None))


def test_a_worker_that_does_not_let_go_of_the_lock_is_not_waited_for_for_ever(server: str) -> None:
    with opened(server) as database:
        with database.lock(), pytest.raises(StoreError, match="held its lock for 0 s; the server's pg_locks"):
            Database(server, lock_s=0.01)
        Database(server, lock_s=60.0).close()


def test_a_connection_that_the_server_has_dropped_is_made_anew(server: str) -> None:
    with opened(server) as database:
        study = case_study(database, name="dropped/amp_walk")
        probe(study, ok(40.0))
        engine = create_engine(server)
        with engine.connect() as connection:
            others = "select pg_terminate_backend(pid, 10000) from pg_stat_activity where pid <> pg_backend_pid()"
            assert connection.exec_driver_sql(f"{others} and datname = current_database()").all()
        engine.dispose()
        probe(study, ok(50.0))
        assert (study.history().finished, study.incumbent()) == (2, 50.0)


def test_a_study_is_exported(server: str, tmp_path: Path) -> None:
    name = "exported/amp_walk"
    with opened(server) as database:
        study = case_study(database, name=name)
        for value in (40.0, 61.5, 50.0):
            probe(study, ok(value))
        probe(study, OUT_OF_MEMORY)
    export_study(server, "exported", tmp_path)
    trials = pd.read_csv(tmp_path / "trials.tsv", sep="\t")
    assert list(trials["status"]) == ["ok", "ok", "ok", "gpu_oom"]
    best = pd.read_csv(tmp_path / "best_by_case.tsv", sep="\t")
    assert (list(best["case"]), list(best["num_envs"])) == (["amp_walk"], [USUAL.start_configs(2)[1]["num_envs"]])


def test_text_that_no_database_can_store_is_made_storable(server: str) -> None:
    name = "texts/amp_walk"
    with opened(server) as database:
        odd = identity(trainer={"name": "gr\udcf6sse\0"})
        study = case_study(database, name=name, known=odd, case=CaseRecord(case="amp_walk", mode="\ud800\0"))
        asked = ask(study)
        study.tell(asked, ok(50.0), ProbeRecord(status="ok", config=asked.config, stopped="out of \udcf6 memory\0"))
        case_study(database, name=name, known=odd)
    (trial,) = StudyReader(connect(server), "texts").trials()
    assert trial.probe.stopped == f"out of {UNREADABLE} memory{UNREADABLE}"


def test_what_a_server_sets_for_its_sessions_is_replaced(server: str) -> None:
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for statement in (
            "create database odd encoding 'SQL_ASCII' template template0",
            "alter database odd set default_transaction_isolation = 'serializable'",
        ):
            connection.exec_driver_sql(statement)
    engine.dispose()
    odd = server.replace("/postgres?", "/odd?")
    with opened(odd) as database:
        case_study(database)
        assert database.storage.rows(text("show transaction_isolation")) == [("read committed",)]
    with connect(odd).connect() as reading:
        assert reading.exec_driver_sql("show client_encoding").scalar() == "UTF8"


def test_work_whose_statement_is_cancelled_is_repeated(server: str) -> None:
    tries: list[str] = []

    def work() -> str:
        if not tries:
            tries.append("cancelled")
            database.storage.rows(text("select set_config('statement_timeout', '1', true)"))
            database.storage.rows(text("select pg_sleep(9)"))
        return "done"

    with opened(server) as database:
        assert database.transact(work) == "done"
