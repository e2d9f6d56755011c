"""The database behind a study: opened once, with its schema made under a lock."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import optuna
from filelock import FileLock, Timeout
from optuna.storages import RDBStorage
from sqlalchemy import Connection, Engine, create_engine, func, inspect, select
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from tuner.errors import StoreError
from tuner.store.patience import PatientConnection
from tuner.store.reconnect import AWAY_S, wait_while_away
from tuner.urls import checked_url, remedy, shown

LOCK_S = 120.0
"""That others are waited for who hand out trials, which takes each a few seconds at most: then one of them hangs."""
_BUSY_S = 60
"""That SQLite waits for other programs to let go of the file: a backup or a browser must not cost a running probe."""
_DELETED = "Record does not exist."
"""Optuna's word, in a KeyError, for a study or a trial that is gone."""
_ADVISORY_LOCK = 0x74756E65  # "tune": one lock for all studies of a PostgreSQL database
_LOCK_NOT_AVAILABLE = "55P03"
"""PostgreSQL's error code for a `lock_timeout` that is over."""


class Database:
    """An Optuna RDB storage and the lock under which trials are handed out."""

    def __init__(
        self,
        url: str,
        *,
        lock_s: float = LOCK_S,
        away_s: float = AWAY_S,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Open the database at an SQLAlchemy URL, creating it where it is SQLite and missing.

        `lock_s` is how long its lock is waited for at most, `away_s` a server that has gone after it was opened;
        `sleep` waits so many seconds.
        Raises StoreError when it is out of reach, in memory alone, or holds something else.
        """
        self._lock_s, self._away_s, self._sleep = lock_s, away_s, sleep
        self._opened = False
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._url = checked_url(url)
        self.shown_url = shown(self._url)
        with self.reported():
            self._make_folder()
            with self.lock():
                self.storage = self._open()
        self._opened = True
        self._be_patient(self.storage.engine)

    def close(self) -> None:
        """Let go of the database's connections."""
        self.storage.remove_session()
        self.storage.engine.dispose()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the one lock under which trials are asked for and taken back.

        SQLite: a file lock beside the database. PostgreSQL: an advisory lock. Other servers: none.
        Raises StoreError where another worker does not let go of it.
        """
        if self._url.get_backend_name() == "sqlite":
            with self._file_lock():
                yield
        elif self._url.get_backend_name() == "postgresql":
            with self._connection() as connection:
                self._take_advisory_lock(connection)
                yield
        else:
            yield

    def _file_lock(self) -> AbstractContextManager[object]:
        file = f"{self._url.database}.lock"
        try:
            return FileLock(file).acquire(timeout=self._lock_s)
        except Timeout as error:
            raise self._held(f"`fuser {file}` names those who have it open") from error

    def _take_advisory_lock(self, connection: Connection) -> None:
        """Take the lock until the connection's transaction ends."""
        try:
            connection.execute(select(func.set_config("lock_timeout", f"{1000 * self._lock_s:.0f}", True)))
            connection.execute(select(func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
        except OperationalError as error:
            if getattr(error.orig, "sqlstate", None) != _LOCK_NOT_AVAILABLE:
                raise
            raise self._held("the server's pg_locks and pg_stat_activity name it (locktype advisory)") from error

    def _held(self, who: str) -> StoreError:
        return StoreError(
            f"database {self.shown_url}: another worker has held its lock for {self._lock_s:.0f} s; {who}; "
            "end the one that hangs, then run again to resume"
        )

    @contextmanager
    def reported(self) -> Iterator[None]:
        """Turn database errors into StoreError with the URL, its password hidden, and what to do."""
        try:
            yield
        except (SQLAlchemyError, OSError, TimeoutError, optuna.exceptions.StorageInternalError) as error:
            reason = str(error.__cause__ or error).splitlines()[0]
            raise StoreError(f"database {self.shown_url}: {reason}; {remedy(self._url)}") from error
        except optuna.exceptions.UpdateFinishedTrialError as error:
            raise StoreError(
                f"database {self.shown_url}: another worker took this trial back and asks it again; run again to resume"
            ) from error
        except KeyError as error:
            if error.args != (_DELETED,):
                raise
            raise StoreError(
                f"database {self.shown_url}: the study has been deleted, in the dashboard or by another program, while "
                "it ran; run again to begin anew"
            ) from error

    def _make_folder(self) -> None:
        if self._url.get_backend_name() == "sqlite" and self._url.database:
            Path(self._url.database).parent.mkdir(parents=True, exist_ok=True)

    def _open(self) -> RDBStorage:
        with self._connection() as connection:
            tables = set(inspect(connection).get_table_names())
        if tables and not {"studies", "trials", "version_info"} <= tables:
            found = ", ".join(sorted(tables)[:5])
            raise StoreError(
                f"database {self.shown_url} is not an Optuna study database (it holds {found}); name another"
            )
        try:
            return RDBStorage(self._url.render_as_string(hide_password=False), self._engine_options)
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise StoreError(
                f"database {self.shown_url} has another schema: {reason}; name another database"
            ) from error

    @property
    def _engine_options(self) -> dict[str, Any]:
        if self._url.get_backend_name() != "sqlite":
            return {"pool_pre_ping": True}  # a connection may be dropped while a probe runs
        usual = {} if "timeout" in self._url.query else {"timeout": _BUSY_S}
        return {"connect_args": {"factory": PatientConnection, **usual}}

    def _be_patient(self, engine: Engine) -> None:
        """Wait for a server that goes away once it has been there; one that is not there at first is refused."""
        if self._opened and self._url.get_backend_name() != "sqlite":
            wait_while_away(engine, self._away_s, self._sleep)

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        engine = create_engine(self._url, **self._engine_options)
        self._be_patient(engine)
        try:
            with engine.connect() as connection:
                yield connection
        finally:
            engine.dispose()
