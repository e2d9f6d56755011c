"""The database behind a study: opened once, with its schema made under a lock."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
from filelock import FileLock
from optuna.storages import RDBStorage
from sqlalchemy import Connection, create_engine, func, inspect, select
from sqlalchemy.exc import SQLAlchemyError

from tuner.errors import StoreError
from tuner.urls import checked_url, remedy, shown

_LOCK_S = 120
_BUSY_S = 60
"""That SQLite waits for other programs to let go of the file: a backup or a browser must not cost a running probe."""
_DELETED = "Record does not exist."
"""Optuna's word, in a KeyError, for a study or a trial that is gone."""
_ADVISORY_LOCK = 0x74756E65  # "tune": one lock for all studies of a PostgreSQL database


class Database:
    """An Optuna RDB storage and the lock under which trials are handed out."""

    def __init__(self, url: str) -> None:
        """Open the database at an SQLAlchemy URL, creating it where it is SQLite and missing.

        Raises StoreError when it is out of reach, in memory alone, or holds something else.
        """
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._url = checked_url(url)
        self.shown_url = shown(self._url)
        with self.reported():
            self._make_folder()
            with self.lock():
                self.storage = self._open()

    def close(self) -> None:
        """Let go of the database's connections."""
        self.storage.remove_session()
        self.storage.engine.dispose()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the one lock under which trials are asked for and taken back.

        SQLite: a file lock beside the database. PostgreSQL: an advisory lock. Other servers: none.
        """
        if self._url.get_backend_name() == "sqlite":
            with FileLock(f"{self._url.database}.lock", timeout=_LOCK_S):
                yield
        elif self._url.get_backend_name() == "postgresql":
            with self._connection() as connection:
                connection.execute(select(func.pg_advisory_lock(_ADVISORY_LOCK)))
                yield
        else:
            yield

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
        patient = self._url.get_backend_name() == "sqlite" and "timeout" not in self._url.query
        return {"connect_args": {"timeout": _BUSY_S}} if patient else {}

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        engine = create_engine(self._url, **self._engine_options)
        try:
            with engine.connect() as connection:
                yield connection
        finally:
            engine.dispose()
