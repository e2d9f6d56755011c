"""Work in one transaction that survives lost connections, servers that go away, and files that others lock."""

import logging
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy import Connection, Dialect, Engine, ExceptionContext, RootTransaction, event, func, select
from sqlalchemy.orm import Session, scoped_session

AWAY_S = 120.0
"""How long to wait for a server. A restart takes seconds, and a change to a standby server about a minute."""
PAUSE_S = 1.0
"""The seconds between two attempts."""


class ConnectionLostError(Exception):
    """The connection was lost during a statement. Optuna knows no such error, so it passes through Optuna at once."""


class RolledBackError(Exception):
    """Something goes on in a transaction that an error has ended; its cause is that error."""


_LOG = logging.getLogger(__name__)


def wait_while_away(engine: Engine, away_s: float, sleep: Callable[[float], None] = time.sleep) -> None:
    """Let an engine try each new connection again and again, for at most `away_s` seconds.

    SQLAlchemy, psycopg and libpq try only once. An engine with `pool_pre_ping` also replaces connections that a restart
    has cut. After `away_s` seconds the last attempt's error is raised. Each wait is logged once.
    """

    @event.listens_for(engine, "do_connect")
    def connect(dialect: Dialect, record: object, arguments: list[Any], options: dict[str, Any]) -> Any:
        end_s, logged = time.monotonic() + away_s, False
        while True:
            try:
                return dialect.connect(*arguments, **options)
            except dialect.loaded_dbapi.OperationalError:
                if time.monotonic() >= end_s:
                    raise
            if not logged:
                _LOG.warning("the database does not answer; waiting for it, up to %.0f s", away_s)
                logged = True
            sleep(PAUSE_S)


def notice_losses(engine: Engine) -> None:
    """Let an engine raise ConnectionLostError where a connection is lost during a statement or a commit."""

    @event.listens_for(engine, "handle_error")
    def lost(context: ExceptionContext) -> None:
        if context.is_disconnect and context.connection is not None:
            raise ConnectionLostError(str(context.original_exception)) from context.original_exception


Answer = TypeVar("Answer")
_IN_PROGRESS, _COMMITTED = "in progress", "committed"
"""What PostgreSQL's `txid_status` says of a transaction."""


class Transactions:
    """Runs work in transactions which all sessions of Optuna's storage join; nothing is stored before the work is done.

    SQLite begins the transaction with the first write, so that work which reads and decides holds up no other program.
    """

    def __init__(
        self,
        engine: Engine,
        sessions: "scoped_session[Session]",
        *,
        away_s: float,
        sleep: Callable[[float], None] = time.sleep,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`away_s` is how long lost connections are replaced before the error is raised."""
        self._engine, self._sessions, self._away_s = engine, sessions, away_s
        self._sleep, self._now_s = sleep, now_s
        self._transaction: RootTransaction | None = None
        notice_losses(engine)
        event.listen(engine, "begin", self._check)

    def run(
        self,
        work: Callable[[], Answer],
        *,
        first: Callable[[Connection], None] = lambda _: None,
        again: Callable[[], None] = lambda: None,
    ) -> Answer:
        """Do the work in one transaction. Work inside other work belongs to the outer transaction.

        `first` is done at the beginning of the transaction, and `again` in it before the work is repeated.
        PostgreSQL tells after a lost connection whether the transaction was committed: the work is not repeated then.
        Raises ConnectionLostError where connections are still lost `away_s` seconds after the first loss.
        """
        if self._transaction is not None:
            return work()
        end_s: float | None = None
        while True:
            answers: list[Answer] = []
            number: int | None = None
            try:
                with self._joining() as connection:
                    first(connection)
                    if end_s is not None:
                        again()
                    answers.append(work())
                    number = self._number(connection)
                    connection.commit()
                    return answers[0]
            except ConnectionLostError:
                if number is not None and self._has_committed(number):
                    return answers[0]
                end_s = self._now_s() + self._away_s if end_s is None else end_s
                if self._now_s() >= end_s:
                    raise

    @contextmanager
    def _joining(self) -> Iterator[Connection]:
        """Yield a connection whose transaction all sessions join; roll back what is not committed."""
        with self._engine.connect() as connection:
            self._transaction = connection.begin()
            self._bind(bind=connection, join_transaction_mode="rollback_only")
            try:
                yield connection
            finally:
                self._transaction = None
                self._bind(bind=self._engine, join_transaction_mode="conditional_savepoint")

    def _check(self, connection: Connection) -> None:
        """Keep sessions from beginning a transaction of their own after an error has ended the common one."""
        if self._transaction is not None and not self._transaction.is_active:
            raise RolledBackError("the transaction has been rolled back")

    def _bind(self, **settings: object) -> None:
        self._sessions.remove()
        self._sessions.configure(**settings)

    def _number(self, connection: Connection) -> int | None:
        """Return PostgreSQL's number of a transaction that has written something."""
        is_numbered = connection.dialect.name == "postgresql"
        return connection.scalar(select(func.txid_current_if_assigned())) if is_numbered else None

    def _has_committed(self, number: int) -> bool:
        while True:
            try:
                with self._engine.connect() as connection:
                    status = connection.scalar(select(func.txid_status(number)))
            except ConnectionLostError:
                status = _IN_PROGRESS
            if status != _IN_PROGRESS:
                return status == _COMMITTED
            self._sleep(PAUSE_S)


SLICE_S = 0.5
"""How long SQLite waits at a time."""


class PatientConnection(sqlite3.Connection):
    """Waits up to `timeout` seconds until other programs release the file.

    If SQLite refuses a call at once, because waiting would not help, this connection refuses it, too. `executemany`,
    which Optuna does not use, waits for one slice.
    """

    def __init__(self, database: str, timeout: float = 5.0, **options: Any) -> None:
        super().__init__(database, timeout=min(timeout, SLICE_S), **options)
        self.patience_s = timeout

    def cursor(self, factory: Any = None) -> Any:
        """Return a cursor that waits in the same way."""
        return super().cursor(factory or (lambda _: _PatientCursor(self)))

    def commit(self) -> None:
        """Commit; wait for programs that still read."""
        self.patiently(super().commit)

    def patiently(self, call: Callable[..., Answer], *arguments: Any) -> Answer:
        """Repeat a call each time SQLite has given up after a slice."""
        end_s = time.monotonic() + self.patience_s
        while True:
            begun_s = time.monotonic()
            try:
                return call(*arguments)
            except sqlite3.OperationalError as error:
                now_s = time.monotonic()
                has_waited = error.sqlite_errorcode == sqlite3.SQLITE_BUSY and now_s - begun_s > SLICE_S / 2
                if not has_waited or now_s >= end_s:
                    raise


class _PatientCursor(sqlite3.Cursor):
    def __init__(self, connection: PatientConnection) -> None:
        super().__init__(connection)
        self._patiently = connection.patiently

    def execute(self, *arguments: Any) -> "_PatientCursor":
        return self._patiently(super().execute, *arguments)
