"""One transaction for all that a piece of work stores; where its connection is lost, the whole work is done again."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy import Connection, Engine, RootTransaction, event, func, select
from sqlalchemy.orm import Session, scoped_session

from tuner.store.reconnect import PAUSE_S, ConnectionLostError, RolledBackError, notice_losses

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
