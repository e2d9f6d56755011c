"""The database behind a study: opened once, its schema made, its trials handed out under one lock.

Several workers may share it, a file of SQLite or a server. Its transactions survive lost connections, servers that go
away, and files that other programs lock. Sessions in this file are those of SQLAlchemy, through which Optuna works.
"""

import logging
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

import optuna
import sqlalchemy as sql
from filelock import FileLock, Timeout
from optuna.exceptions import StorageInternalError, UpdateFinishedTrialError
from optuna.storages import RDBStorage
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError
from sqlalchemy.orm import Session, scoped_session

from tuner.errors import StoreError
from tuner.probe import make_private
from tuner.records.urls import checked_url, remedy, session_options, shown
from tuner.store.leases import Lease, Liveness, database_s
from tuner.store.storage import NO_RECORD, TrialStorage

Answer = TypeVar("Answer")
AWAY_S = 120.0
"""How long to wait for a server. A restart takes seconds, and a change to a standby server about a minute."""
PAUSE_S = 1.0
"""The seconds between two attempts."""


class ConnectionLostError(Exception):
    """The connection was lost during a statement. Optuna knows no such error, so it passes through Optuna at once."""


class FileLockedError(StoreError):
    """Another program locks the file of the database."""


class RolledBackError(Exception):
    """Some work goes on in a transaction that an error has ended. That error is the cause of this exception."""


_LOG = logging.getLogger(__name__)


def retry_connecting(engine: sql.Engine, away_s: float, sleep: Callable[[float], None]) -> None:
    """Let an engine wait for a server that is away: from now on it tries each new connection again and again.

    SQLAlchemy, psycopg and libpq try only once. An engine with `pool_pre_ping` also replaces connections that a restart
    has cut. Each wait is logged once.

    Args:
        engine: The engine, which is changed.
        away_s: After this many seconds, the last attempt's error is raised.
        sleep: Waits for a number of seconds.
    """

    @event.listens_for(engine, "do_connect")
    def connect(dialect: sql.Dialect, record: object, arguments: list[Any], options: dict[str, Any]) -> Any:
        """Return a connection of the driver; raise its error once the server has been away for too long."""
        end_s = time.monotonic() + away_s
        logged = False
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


def raise_connection_losses(engine: sql.Engine) -> None:
    """Let an engine raise ConnectionLostError for each error after which the transaction may succeed if it is repeated.

    These are a connection that is lost during a statement, and PostgreSQL's conflict, deadlock and cancelled statement.
    """
    repeatable = {"40001", "40P01", "57014"}  # PostgreSQL's codes of the latter three

    @event.listens_for(engine, "handle_error")
    def check(context: sql.ExceptionContext) -> None:
        """Raise ConnectionLostError for such an error; leave any other error to SQLAlchemy."""
        is_lost = context.is_disconnect or getattr(context.original_exception, "sqlstate", None) in repeatable
        if is_lost and context.connection is not None:  # without it, the error is one of connecting
            raise ConnectionLostError(str(context.original_exception)) from context.original_exception


class Transactions:
    """Runs several calls of Optuna's storage in one transaction: either all that they write is stored, or nothing.

    Optuna alone uses a transaction for each call. SQLite begins the transaction with the first write, so that work
    which reads and decides holds up no other program.
    """

    def __init__(
        self,
        engine: sql.Engine,
        sessions: "scoped_session[Session]",
        *,
        away_s: float,
        sleep: Callable[[float], None] = time.sleep,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Let all sessions of a storage join the transactions that this object runs.

        Args:
            engine: The engine of the storage.
            sessions: The sessions through which the storage reads and writes.
            away_s: For how many seconds lost connections are replaced before the error is raised.
            sleep: Waits for a number of seconds.
            now_s: Returns the time in seconds.
        """
        self._engine, self._sessions, self._away_s = engine, sessions, away_s
        self._sleep, self._now_s = sleep, now_s
        self._transaction: sql.RootTransaction | None = None
        self._bind(autoflush=False)  # a session writes all that Optuna has added at once, when it commits
        raise_connection_losses(engine)
        event.listen(engine, "begin", self._refuse_after_rollback)

    def run(
        self,
        work: Callable[[], Answer],
        *,
        at_begin: Callable[[sql.Connection], None] = lambda _: None,
        before_repeat: Callable[[], None] = lambda: None,
    ) -> Answer:
        """Do some work in one transaction, and return what it returns. Work inside other work joins its transaction.

        If a connection is lost, the work is done again from its beginning, unless PostgreSQL answers that the
        transaction was committed: then only the reply was lost.

        Args:
            work: What to do.
            at_begin: Called at the beginning of each transaction, also of a repeated one, with its connection.
            before_repeat: Called after that, before the work is repeated.

        Raises:
            ConnectionLostError: Connections are still lost `away_s` seconds after the first loss.
        """
        if self._transaction is not None:
            return work()
        end_s: float | None = None  # none before the first loss
        while True:
            answers: list[Answer] = []  # the answer, once the work is done
            number: int | None = None  # that of the transaction, once it is about to be committed
            try:
                with self._shared_transaction() as connection:
                    at_begin(connection)
                    if end_s is not None:
                        before_repeat()
                    answers.append(work())
                    number = self._transaction_number(connection)
                    connection.commit()
                    return answers[0]
            except ConnectionLostError:
                if number is not None and self._has_committed(number):  # only the reply was lost
                    return answers[0]
                if end_s is None:  # the first loss: repeat at once
                    end_s = self._now_s() + self._away_s
                else:
                    self._sleep(PAUSE_S)
                if self._now_s() >= end_s:
                    raise

    @property
    def is_open(self) -> bool:
        """Whether this is asked inside the work of a transaction."""
        return self._transaction is not None

    @contextmanager
    def _shared_transaction(self) -> Iterator[sql.Connection]:
        """Yield a connection whose transaction all sessions join; roll back what is not committed."""
        with self._engine.connect() as connection:
            self._transaction = connection.begin()
            self._bind(bind=connection, join_transaction_mode="rollback_only")  # a session's commit stores nothing yet
            try:
                yield connection
            finally:
                self._transaction = None
                self._bind(bind=self._engine, join_transaction_mode="conditional_savepoint")

    def _refuse_after_rollback(self, connection: sql.Connection) -> None:
        """Raise RolledBackError where a session begins a transaction after an error has ended that of all sessions."""
        if self._transaction is not None and not self._transaction.is_active:
            raise RolledBackError("the transaction has been rolled back")

    def _bind(self, **settings: object) -> None:
        """Give these settings of SQLAlchemy to all sessions that begin from now on."""
        self._sessions.remove()
        self._sessions.configure(**settings)

    def _transaction_number(self, connection: sql.Connection) -> int | None:
        """Return PostgreSQL's number of the open transaction, by which `_has_committed` asks for it later.

        None if the transaction has written nothing, and for other databases.
        """
        is_numbered = connection.dialect.name == "postgresql"
        return connection.scalar(sql.select(sql.func.txid_current_if_assigned())) if is_numbered else None

    def _has_committed(self, number: int) -> bool:
        """Return whether a transaction was committed. PostgreSQL says it as soon as the transaction is over."""
        while True:
            with suppress(ConnectionLostError), self._engine.connect() as connection:
                status = connection.scalar(sql.select(sql.func.txid_status(number)))
                if status != "in progress":
                    return status == "committed"
            self._sleep(PAUSE_S)


SLICE_S = 0.5
"""How long SQLite waits at a time for a file that another program locks."""
_SHORT_WAIT: ContextVar[bool] = ContextVar("short_wait", default=False)
"""Whether work that meets a locked file is given up after one such slice."""


class PatientConnection(sqlite3.Connection):
    """A connection to a file of SQLite that waits up to `timeout` seconds until other programs release the file.

    If SQLite refuses a call at once, because waiting would not help, this connection refuses it, too. `executemany`,
    which Optuna does not use, waits for `SLICE_S` only.
    """

    def __init__(self, database: str, timeout: float = 5.0, **options: Any) -> None:
        super().__init__(database, timeout=min(timeout, SLICE_S), **options)
        self.patience_s = timeout

    def cursor(self, factory: Any = None) -> Any:
        """Return a cursor that waits in the same way."""
        return super().cursor(factory or (lambda _: _PatientCursor(self)))

    def commit(self) -> None:
        """Commit; wait for programs that still read."""
        self.wait_while_locked(super().commit)

    def wait_while_locked(self, call: Callable[..., Answer], *arguments: Any) -> Answer:
        """Return what a call of SQLite returns; make it again while another program locks the file.

        SQLite itself gives up after `SLICE_S` seconds, so that Ctrl-C is heard. This gives up after `patience_s`
        seconds, or after the first try if the work wants a short wait.
        """
        start_s = time.monotonic()
        end_s = start_s if _SHORT_WAIT.get() else start_s + self.patience_s
        logged = False
        while True:
            call_s = time.monotonic()
            try:
                return call(*arguments)
            except sqlite3.OperationalError as error:
                now_s = time.monotonic()
                # SQLite refuses at once what waiting cannot help, such as a deadlock; otherwise it waits for a slice.
                has_waited = error.sqlite_errorcode == sqlite3.SQLITE_BUSY and now_s - call_s > SLICE_S / 2
                if not has_waited or now_s >= end_s:
                    raise
                if now_s - start_s > 5.0 and not logged:
                    _LOG.warning("another program locks the database; waiting for it, up to %.0f s", self.patience_s)
                    logged = True


class _PatientCursor(sqlite3.Cursor):
    """Waits as its connection does."""

    def __init__(self, connection: PatientConnection) -> None:
        super().__init__(connection)
        self._wait_while_locked = connection.wait_while_locked

    def execute(self, *arguments: Any) -> "_PatientCursor":
        """Run a statement; wait while another program locks the file."""
        return self._wait_while_locked(super().execute, *arguments)


_FAILURES = (SQLAlchemyError, OSError, UnicodeError, StorageInternalError, ConnectionLostError, RolledBackError)
"""What the database, its driver and its transactions raise."""


_LAST_TABLE = "alembic_version"
"""The table that Optuna makes last: where it exists, the others do, too."""


class Database:
    """An Optuna RDB storage and the lock under which trials are handed out."""

    def __init__(
        self,
        url: str,
        *,
        lock_s: float = AWAY_S + 60.0,
        away_s: float = AWAY_S,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Open the database at an SQLAlchemy URL. A missing SQLite file is created.

        Args:
            url: The URL of the database.
            lock_s: How many seconds to wait for the lock. Who holds it may wait for the server, and then needs seconds.
            away_s: How many seconds to wait for a server that goes away later, and for a file that another program
                locks: neither must cost the result of a probe.
            sleep: Waits for a number of seconds.

        Raises:
            StoreError: The database cannot be reached, exists only in memory, or holds other tables than Optuna's.
        """
        self._lock_s, self._away_s = lock_s, away_s
        self.lives = Liveness(self.now_s)
        """Returns whether a process on another host lives, by the lease that it has written."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._url = checked_url(url)
        self.shown_url = shown(self._url)
        with self.errors_explained():
            # Refuse another kind of database before anything is made. Another worker may be making the tables now: then
            # look at them again under the lock.
            tables = self._checked_tables(may_be_partial=True)
            self._make_file()
            with self.lock():
                self.storage = self._opened_storage(tables if _LAST_TABLE in tables else self._checked_tables())
        if not self._is_sqlite:  # only now: a server that never answered may have another URL, so nothing waits for it
            retry_connecting(self.storage.engine, away_s, sleep)
        sessions = self.storage.rdb.scoped_session
        self._transactions = Transactions(self.storage.engine, sessions, away_s=away_s, sleep=sleep)

    def now_s(self) -> float:
        """Return the seconds since 1970 on the database's clock. Raises StoreError."""
        return self.transact(lambda: database_s(self._url, lambda query: self.storage.rows(query)[0][0]))

    def lease(self) -> dict[str, Any]:
        """Return what a trial stores about the process that runs it: a lease of this process. Raises StoreError."""
        return Lease.mine(self.now_s()).write()

    def close(self) -> None:
        """Close all connections to the database."""
        self.storage.remove_session()
        self.storage.engine.dispose()

    def transact(self, work: Callable[[], Answer], *, exclusive: bool = False, short_wait: bool = False) -> Answer:
        """Do some work in one transaction, and return what it returns: see `Transactions.run`.

        If the server goes away meanwhile, the work is done again from its beginning. If it is part of other work, the
        outer work is done again.

        Args:
            work: What to do; its answer is returned.
            exclusive: No other worker does such work at the same time.
            short_wait: Give up after `SLICE_S` seconds where another program locks the file.

        Raises:
            FileLockedError: A program locks the file, and locks it still after the wait.
            StoreError: Any other error of the database.
        """

        at_begin = self._take_lock if exclusive else lambda _: None
        file_lock = self._file_lock() if exclusive and self._is_sqlite else nullcontext()
        reported = nullcontext() if self._transactions.is_open else self.errors_explained()  # the outer work reports
        with reported, _with_short_wait(short_wait), file_lock:
            try:
                return self._transactions.run(work, at_begin=at_begin, before_repeat=self.storage.drop_cached_trials)
            except BaseException:
                self.storage.drop_cached_trials()  # the transaction's own trials were rolled back
                raise

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the lock of the database inside a `with` block: only one worker holds it at a time.

        Trials begin, and trials of other workers are ended, only under this lock. SQLite has a file lock beside the
        database, PostgreSQL an advisory lock. Raises StoreError if another worker does not release the lock.
        """
        if self._is_sqlite:
            with self._file_lock():
                yield
        else:
            with self._connection() as connection:
                self._take_lock(connection)
                yield

    def _file_lock(self) -> AbstractContextManager[object]:
        """Return the lock file of a SQLite database, locked. Raises StoreError where another worker holds it."""
        file = f"{self._url.database}.lock"
        try:
            return FileLock(file).acquire(timeout=self._lock_s)
        except Timeout as error:
            raise self._lock_error(f"`fuser {file}` names the processes that have the lock file open") from error

    def _take_lock(self, connection: sql.Connection) -> None:
        """Take PostgreSQL's lock until the connection's transaction ends; on other databases do nothing.

        Raises StoreError where another worker holds it.
        """
        if self._url.get_backend_name() != "postgresql":
            return
        try:
            connection.execute(sql.select(sql.func.set_config("lock_timeout", f"{1000 * self._lock_s:.0f}", True)))
            connection.execute(sql.select(sql.func.pg_advisory_xact_lock(0x74756E65)))  # "tune": for all studies
        except OperationalError as error:
            if getattr(error.orig, "sqlstate", None) != "55P03":  # `lock_timeout` has not passed
                raise
            holder = "the server's pg_locks and pg_stat_activity name the process (locktype advisory)"
            raise self._lock_error(holder) from error

    @property
    def _is_sqlite(self) -> bool:
        """Whether the database is a file of SQLite."""
        return self._url.get_backend_name() == "sqlite"

    def _lock_error(self, holder: str) -> StoreError:
        """Return the error about a lock that another worker holds; `holder` says how to find that worker."""
        return StoreError(
            f"database {self.shown_url}: another worker has held its lock for {self._lock_s:.0f} s; {holder}; "
            "end the process that hangs, then run the command again to resume"
        )

    @contextmanager
    def errors_explained(self) -> Iterator[None]:
        """Turn errors of the database in a `with` block into StoreError: with the URL, and what to do about them."""
        try:
            yield
        except (*_FAILURES, UpdateFinishedTrialError, LookupError, ValueError) as error:
            explanation = _explanation(error, self._url)
            if explanation is None:
                raise
            kind = FileLockedError if _is_locked(error) else StoreError
            raise kind(f"database {self.shown_url}: {explanation}") from error

    def _make_file(self) -> None:
        """Make the file of a SQLite database, if it is missing, so that only its owner can read it."""
        if self._is_sqlite and self._url.database:
            file = Path(self._url.database)
            file.parent.mkdir(parents=True, exist_ok=True)
            if not self._url.database.startswith("file:"):
                make_private(file)

    def _checked_tables(self, *, may_be_partial: bool = False) -> set[str]:
        """Return the names of the tables. Raises StoreError where there are other tables than Optuna's.

        `may_be_partial`: whether another worker may be making Optuna's tables now. Then one of them is enough, until
            the last one is there.
        """
        if self._is_sqlite and not Path(self._url.database or "").exists():
            return set()
        with self._connection() as connection:
            tables = set(sql.inspect(connection).get_table_names())
        optuna_tables = {"studies", "trials", "version_info"}  # every database of Optuna has these
        is_partial = may_be_partial and _LAST_TABLE not in tables and bool(tables & optuna_tables)
        is_of_optuna = is_partial or tables >= optuna_tables
        if tables and not is_of_optuna:
            names = ", ".join(sorted(tables)[:5])
            raise StoreError(
                f"database {self.shown_url} is not an Optuna study database (its tables are {names}); name another"
            )
        return tables

    def _opened_storage(self, tables: set[str]) -> TrialStorage:
        """Return the storage, after missing tables are made. Raises StoreError for tables of another Optuna.

        `tables`: the names of the tables that exist.
        """
        url = self._url.render_as_string(hide_password=False)
        try:
            return TrialStorage(RDBStorage(url, self._engine_options, skip_table_creation=_LAST_TABLE in tables))
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise StoreError(
                f"database {self.shown_url} has another schema: {reason}; name another database"
            ) from error

    @property
    def _engine_options(self) -> dict[str, Any]:
        """The options of SQLAlchemy's engine: connections to a file wait, and those to a server are replaced if cut."""
        if not self._is_sqlite:  # a connection may be cut while a probe runs for minutes
            return {"pool_pre_ping": True, **session_options(self._url)}
        timeout = {} if "timeout" in self._url.query else {"timeout": self._away_s}
        return {"connect_args": {"factory": PatientConnection, **timeout}}

    @contextmanager
    def _connection(self) -> Iterator[sql.Connection]:
        """Yield a connection for work outside of Optuna's storage, and close it after the `with` block.

        So the tables are looked at before the storage is opened, and a lock is held while the storage is used.
        """
        engine = sql.create_engine(self._url, **self._engine_options)
        try:
            with engine.connect() as connection:
                yield connection
        finally:
            engine.dispose()


@contextmanager
def _with_short_wait(wanted: bool) -> Iterator[None]:
    """Let connections in a `with` block give up a locked file after `SLICE_S`, if it or an outer block wants that."""
    token = _SHORT_WAIT.set(wanted or _SHORT_WAIT.get())
    try:
        yield
    finally:
        _SHORT_WAIT.reset(token)


def _of_driver(error: BaseException) -> object:
    """Return the driver's error behind one of SQLAlchemy or Optuna; the error itself where there is none."""
    cause = error.__cause__ or error
    return cause.orig if isinstance(cause, DBAPIError) else cause


def _is_locked(error: BaseException) -> bool:
    """Return whether another program locks the file of the database."""
    code = getattr(_of_driver(error), "sqlite_errorcode", None)
    return isinstance(code, int) and code & 0xFF == sqlite3.SQLITE_BUSY  # the primary code of an extended one


def _explanation(error: Exception, url: sql.URL) -> str | None:
    """Return what went wrong and what to do about it; None for an error that is not the database's."""
    if _is_locked(error):
        return (
            f"another program locks its file and does not let go of it; `fuser {url.database}` names the processes "
            "that have it open; then run the command again to resume"
        )
    if getattr(_of_driver(error), "sqlite_errorcode", None) == sqlite3.SQLITE_READONLY_DBMOVED:
        return "its file has been deleted or moved meanwhile; put it back, or run the command again to begin anew"
    if isinstance(error, _FAILURES):
        return f"{str(error.__cause__ or error).splitlines()[0]}; {remedy(url)}"
    if isinstance(error, UpdateFinishedTrialError):
        return "another worker ended this trial and will probe its config again; run the command again to resume"
    if error.args == (NO_RECORD,):
        where = "in the dashboard or by another program"
        return f"the study was deleted while it ran, {where}; run the command again to begin anew"
    texts_of_newer_versions = ("Unknown distribution class", " is not among the defined enum values")
    is_newer = any(text in str(error) for text in texts_of_newer_versions)
    return f"a newer version has written into it ({error}); update tuner and optuna" if is_newer else None
