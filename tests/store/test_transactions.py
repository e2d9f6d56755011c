"""A connection that is lost at any statement, or just after a commit, loses nothing and does nothing twice."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, event
from sqlalchemy.orm import scoped_session, sessionmaker
from tests_replays import FakeClock
from tests_store import ask, case_study, ok, opened, repeats, states, stored, tell

from tuner.errors import StoreError
from tuner.store.database import ConnectionLostError, Database, Transactions
from tuner.study.space import Parameter, Space

LARGE = Space((Parameter(name="num_envs", values=tuple(range(1, 201))),))
STEP = 7
"""The statements at which the connection is lost are so far apart. With 1, which takes long, it is every statement."""

pytestmark = pytest.mark.early


@pytest.fixture
def database(postgresql_server: str) -> Iterator[Database]:
    with opened(postgresql_server, sleep=lambda _: None) as database:
        yield database


@contextmanager
def lost_before_statement(database: Database, *numbers: int) -> Iterator[list[int]]:
    """Cut the connection before the statements of these numbers; give the numbers of the statements."""
    seen: list[int] = []

    def cut(connection: Connection, *_: Any) -> None:
        seen.append(len(seen))
        if seen[-1] in numbers:
            connection.connection.dbapi_connection.close()  # pyright: ignore[reportOptionalMemberAccess]

    event.listen(database.storage.engine, "before_cursor_execute", cut)
    try:
        yield seen
    finally:
        event.remove(database.storage.engine, "before_cursor_execute", cut)


@contextmanager
def lost_after_commit(database: Database) -> Iterator[None]:
    """Cut the connection once, after the server has committed and before anybody hears of it."""
    cuts: list[None] = []

    def cut(connection: Connection) -> None:
        if not cuts:
            cuts.append(None)
            connection.connection.commit()
            connection.connection.dbapi_connection.close()  # pyright: ignore[reportOptionalMemberAccess]

    event.listen(database.storage.engine, "commit", cut)
    try:
        yield
    finally:
        event.remove(database.storage.engine, "commit", cut)
        assert cuts


def test_a_connection_that_is_lost_at_any_statement_costs_nothing(database: Database) -> None:
    name = "lost/amp_walk"
    study = case_study(database, name=name, space=LARGE)
    number = 0
    for number in count(step=STEP):
        with lost_before_statement(database, number) as seen:
            asked = ask(study)
            study.report(asked, 1, 40.0)
            tell(study, asked, ok(50.0))
        if number not in seen:
            break
    told = stored(database, name)
    assert [one.number for one in told] == list(range(number // STEP + 1))
    assert {one.state.name for one in told} == {"COMPLETE"}
    assert not repeats([one.params for one in told])
    assert all(one.intermediate_values == {1: 40.0} for one in told)


def test_a_connection_that_is_lost_again_while_work_is_repeated_costs_nothing(database: Database) -> None:
    study = case_study(database, name="again/amp_walk")
    asked = ask(study)
    with lost_before_statement(database, *range(12)) as seen:
        study.report(asked, 1, 40.0)
    with lost_before_statement(database, *range(12)):
        tell(study, asked, ok(50.0))
    assert len(seen) > 12
    (told,) = stored(database, "again/amp_walk")
    assert (told.state.name, told.intermediate_values) == ("COMPLETE", {1: 40.0})


def test_what_was_committed_is_not_done_again(database: Database) -> None:
    study = case_study(database, name="committed/amp_walk")
    with lost_after_commit(database):
        asked = ask(study)
    assert asked.number == 0
    with lost_after_commit(database):
        tell(study, asked, ok(50.0))
    assert ask(study).number == 1
    assert states(database, "committed/amp_walk") == {"COMPLETE": 1, "RUNNING": 1}


def test_an_error_in_the_middle_of_work_stores_nothing_of_it(database: Database) -> None:
    study = case_study(database, name="half/amp_walk")

    def halted(_: float | None) -> bool:
        database.storage.create_new_trial(database.storage.get_study_id_from_name("half/amp_walk"))
        raise StoreError("halted")

    with pytest.raises(StoreError, match="halted"):
        study.ask(1, has_time=halted)
    assert states(database, "half/amp_walk") == {}
    assert ask(study).number == 0


def test_connections_that_are_lost_again_and_again_end_in_one_message(postgresql_server: str) -> None:
    database = Database(postgresql_server, away_s=0.0)
    study = case_study(database, name="never/amp_walk")
    with lost_before_statement(database, 3), pytest.raises(StoreError, match="the connection is closed"):
        ask(study)
    database.close()


@pytest.mark.parametrize(("each_s", "losses", "ends"), [(200.0, 1, True), (50.0, 3, True), (50.0, 9, False)])
def test_the_wait_for_a_server_counts_from_the_first_loss(each_s: float, losses: int, ends: bool) -> None:
    engine, clock, lost = create_engine("sqlite://"), FakeClock(), count(1)
    transactions = Transactions(engine, scoped_session(sessionmaker(engine)), away_s=120.0, now_s=clock.now)

    def work() -> int:
        clock.advance(each_s)
        if (times := next(lost)) <= losses:
            raise ConnectionLostError
        return times

    if ends:
        assert transactions.run(work) == losses + 1
    else:
        with pytest.raises(ConnectionLostError):
            transactions.run(work)
        assert next(lost) == 5
    engine.dispose()
