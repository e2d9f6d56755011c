"""Study databases for fast tests: what takes long is done once, and nothing waits for the disk."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, event
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from tuner.store.database import Database

_read = ScriptDirectory.from_config
_MIGRATIONS: dict[str | None, ScriptDirectory] = {}


def migrations(config: Config) -> ScriptDirectory:
    """Return the migrations of a schema, read once. Optuna reads all of its migrations twice for each new database."""
    place = config.get_main_option("script_location")
    if place not in _MIGRATIONS:
        _MIGRATIONS[place] = _read(config)
    return _MIGRATIONS[place]


@cache
def empty_database() -> bytes:
    """Return a SQLite file with only the schema of a study database.

    To copy this file is faster than to make the schema.
    """
    with TemporaryDirectory() as folder:
        file = Path(folder) / "study.db"
        Database(f"sqlite:///{file}").close()
        return file.read_bytes()


class AlikeDialect(SQLiteDialect_pysqlite):
    """The dialect of SQLite; those of all engines are equal, because SQLAlchemy keeps compiled SQL by its dialect."""

    supports_statement_cache = True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AlikeDialect)

    def __hash__(self) -> int:
        return hash(AlikeDialect)


@contextmanager
def compiling_once() -> Iterator[None]:
    """Let all SQLite files share compiled SQL. A file has an engine of its own, and each would compile all SQL anew."""
    compiled: dict[Any, Any] = {}

    def share(connection: Connection) -> None:
        if isinstance(connection.dialect, AlikeDialect):
            connection.execution_options(compiled_cache=compiled)

    registry.register("sqlite", __name__, AlikeDialect.__name__)
    event.listen(Engine, "engine_connect", share)
    yield
    event.remove(Engine, "engine_connect", share)


JOURNAL = "memory"
"""Where SQLite keeps what undoes a transaction. Only with `delete`, in a file, it notices that a database was moved."""


@contextmanager
def without_power_cuts() -> Iterator[None]:
    """Let SQLite and exports of this process write without waiting for the disk.

    Its transactions are rolled back from memory, because files for that are made and deleted with each of them. So a
    kill of this process would spoil a database; tests of a kill run processes of their own, to which this is not done.
    """

    def hurry(connection: object, _: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("pragma synchronous = off")
            connection.execute(f"pragma journal_mode = {JOURNAL}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda _: None)
        event.listen(Engine, "connect", hurry)
        yield
        event.remove(Engine, "connect", hurry)
