"""Waiting for a database server that is away for a while."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError
from tests_postgresql import Server, private_server
from tests_store import RETRY, ask, case_study, ok, states, tell

from tuner.errors import StoreError
from tuner.store.case_study import CaseStudy, OwnTrial
from tuner.store.database import PAUSE_S, Database, retry_connecting


def test_each_new_connection_is_tried_until_the_database_answers_and_says_so_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'later/songs.db'}")
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            (tmp_path / "later").mkdir()

    retry_connecting(engine, 60.0, sleep)
    with engine.connect() as connection:
        assert connection.exec_driver_sql("select 1").scalar() == 1
    engine.dispose()
    assert pauses == [PAUSE_S] * 3
    assert capsys.readouterr().err == "the database does not answer; waiting for it, up to 60 s\n"


def test_the_wait_ends(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'never/songs.db'}")
    retry_connecting(engine, 0.0, sleep=unwanted)
    with pytest.raises(OperationalError, match="unable to open database file"):
        engine.connect()


def unwanted(seconds: float) -> None:
    pytest.fail("nothing is waited for")


@pytest.fixture(scope="module")
def stoppable() -> Iterator[Server]:
    with private_server() as server:
        yield server


@pytest.fixture
def server(stoppable: Server) -> Server:
    stoppable.start()
    return stoppable


def told(study: CaseStudy, asked: OwnTrial) -> None:
    tell(study, asked, ok(50.0))


def reported(study: CaseStudy, asked: OwnTrial) -> None:
    study.report(asked, 1, 50.0)


def shown(study: CaseStudy, asked: OwnTrial) -> None:
    assert (study.incumbent(), study.history().finished) == (None, 0)


def asked_for(study: CaseStudy, asked: OwnTrial) -> None:
    tell(study, ask(study), RETRY)


@pytest.mark.parametrize("work", [told, reported, shown, asked_for])
def test_a_server_that_restarts_is_waited_for_and_nothing_is_lost(
    server: Server, work: Callable[[CaseStudy, OwnTrial], None]
) -> None:
    name, pauses = f"{work.__name__}/amp_walk", list[float]()

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        server.start()

    database = Database(server.url, sleep=sleep)
    study = case_study(database, name=name)
    asked = ask(study)
    server.stop()
    work(study, asked)
    if work is not told:
        told(study, asked)
    assert pauses
    assert states(database, name)["COMPLETE"] == 1
    database.close()


def test_a_server_that_stays_away_ends_the_wait(server: Server) -> None:
    name = "away/amp_walk"
    database = Database(server.url, away_s=0.0, sleep=unwanted)
    study = case_study(database, name=name)
    asked = ask(study)
    server.stop()
    with pytest.raises(StoreError, match="check the URL, the server and free space"):
        tell(study, asked, ok(50.0))
    database.close()
    server.start()
    database = Database(server.url)
    assert states(database, name) == {"RUNNING": 1}
    database.close()


def test_a_server_that_is_not_there_at_first_is_refused_at_once(server: Server) -> None:
    server.stop()
    with pytest.raises(StoreError, match="check the URL, the server and free space"):
        Database(server.url, sleep=unwanted)
