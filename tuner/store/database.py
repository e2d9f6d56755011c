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
"""How long a worker waits for the lock. A worker needs the lock for seconds; one that holds it longer hangs."""
_BUSY_S = 60
"""How long SQLite waits until other programs release the file: a backup must not cost the result of a probe."""
_DELETED = "Record does not exist."
"""The text of Optuna's KeyError for a study or a trial that is gone."""
_ADVISORY_LOCK = 0x74756E65  # "tune": one lock for all studies of a PostgreSQL database
_LOCK_NOT_AVAILABLE = "55P03"
"""PostgreSQL's error code when `lock_timeout` has passed."""
_COMPATIBLE: set[str] = set()
"""Versions of the schema that Optuna has accepted in this process."""


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
        """Open the database at an SQLAlchemy URL. A missing SQLite file is created.

        `lock_s`: how long to wait for the lock. `away_s`: how long to wait for a server that goes away later. `sleep`
        waits for a number of seconds. Raises StoreError if the database cannot be reached, exists only in memory, or
        holds other tables than Optuna's.
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
        """Close all connections to the database."""
        self.storage.remove_session()
        self.storage.engine.dispose()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the lock of the database: only the worker that holds it begins trials, or ends those of other workers.

        SQLite has a file lock beside the database, PostgreSQL an advisory lock, other servers have none.
        Raises StoreError if another worker does not release the lock.
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
            raise self._lock_error(f"`fuser {file}` names the processes that have the lock file open") from error

    def _take_advisory_lock(self, connection: Connection) -> None:
        """Take the lock until the connection's transaction ends."""
        try:
            connection.execute(select(func.set_config("lock_timeout", f"{1000 * self._lock_s:.0f}", True)))
            connection.execute(select(func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
        except OperationalError as error:
            if getattr(error.orig, "sqlstate", None) != _LOCK_NOT_AVAILABLE:
                raise
            who = "the server's pg_locks and pg_stat_activity name the process (locktype advisory)"
            raise self._lock_error(who) from error

    def _lock_error(self, who: str) -> StoreError:
        return StoreError(
            f"database {self.shown_url}: another worker has held its lock for {self._lock_s:.0f} s; {who}; "
            "end the process that hangs, then run the command again to resume"
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
                f"database {self.shown_url}: another worker ended this trial and will probe its config again; run the "
                "command again to resume"
            ) from error
        except KeyError as error:
            if error.args != (_DELETED,):
                raise
            raise StoreError(
                f"database {self.shown_url}: the study was deleted while it ran, in the dashboard or by another "
                "program; run the command again to begin anew"
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
                f"database {self.shown_url} is not an Optuna study database (its tables are {found}); name another"
            )
        try:
            return self._compatible(self._storage(checked=False))
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise StoreError(
                f"database {self.shown_url} has another schema: {reason}; name another database"
            ) from error

    def _compatible(self, quick: RDBStorage) -> RDBStorage:
        """Let Optuna check a version of the schema that is new to this process.

        The check takes five times as long as all other work of opening a database.
        Raises RuntimeError where Optuna refuses the version.
        """
        if quick.get_current_version() in _COMPATIBLE:
            return quick
        quick.engine.dispose()
        checked = self._storage(checked=True)
        _COMPATIBLE.add(checked.get_current_version())
        return checked

    def _storage(self, *, checked: bool) -> RDBStorage:
        url = self._url.render_as_string(hide_password=False)
        return RDBStorage(url, self._engine_options, skip_compatibility_check=not checked)

    @property
    def _engine_options(self) -> dict[str, Any]:
        if self._url.get_backend_name() != "sqlite":
            return {"pool_pre_ping": True}  # a connection may be dropped while a probe runs
        usual = {} if "timeout" in self._url.query else {"timeout": _BUSY_S}
        return {"connect_args": {"factory": PatientConnection, **usual}}

    def _be_patient(self, engine: Engine) -> None:
        """Wait for a server that goes away after it has answered once. At the first connection, do not wait."""
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
