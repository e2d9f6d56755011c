"""Study databases for fast tests: what takes long is done once, and nothing waits for the disk."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, event

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


@contextmanager
def without_power_cuts() -> Iterator[None]:
    """Let SQLite and exports write without waiting for the disk. What a killed process has written still survives."""

    def hurry(connection: object, _: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("pragma synchronous = off")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda _: None)
        event.listen(Engine, "connect", hurry)
        yield
        event.remove(Engine, "connect", hurry)
