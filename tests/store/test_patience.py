"""Waiting for a SQLite file that another program locks."""

import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Timer

import pytest

from tuner.store.database import SLICE_S, PatientConnection


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "songs.db"
    with closing(sqlite3.connect(file)) as made:
        made.execute("create table songs (name text)")
        made.executemany("insert into songs values (?)", [("one",), ("two",)])
        made.commit()
    return file


@pytest.fixture
def other(file: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(file)) as other:
        yield other


def patient(file: Path, timeout: float = 60.0) -> "closing[sqlite3.Connection]":
    return closing(sqlite3.connect(file, timeout=timeout, factory=PatientConnection))


def names(file: Path) -> list[str]:
    with closing(sqlite3.connect(file)) as reader:
        return [name for (name,) in reader.execute("select name from songs")]


def write(connection: sqlite3.Connection) -> None:
    connection.cursor().execute("insert into songs values (?)", ("three",))
    connection.commit()


@pytest.mark.parametrize("hold", ["begin exclusive", "select name from songs"], ids=["writer", "reader"])
def test_a_signal_is_handled_during_the_wait_for_the_file(file: Path, other: sqlite3.Connection, hold: str) -> None:
    """The signal's handler releases the file. If the handler ran only after the wait, the wait would fail."""
    holding = other.execute(hold)
    holding.fetchone()

    def let_go(*_: object) -> None:
        holding.close()
        other.rollback()

    before = signal.signal(signal.SIGUSR1, let_go)
    sender = Timer(SLICE_S / 5, os.kill, (os.getpid(), signal.SIGUSR1))
    try:
        with patient(file, 5.0) as connection:
            sender.start()
            write(connection)
    finally:
        sender.join()
        signal.signal(signal.SIGUSR1, before)
    assert names(file) == ["one", "two", "three"]


@pytest.mark.parametrize("timeout", [0.0, 1.2 * SLICE_S])
def test_the_wait_ends(file: Path, other: sqlite3.Connection, timeout: float) -> None:
    other.execute("begin exclusive")
    with patient(file, timeout) as connection, pytest.raises(sqlite3.OperationalError, match="database is locked"):
        write(connection)


def test_an_error_that_waiting_cannot_remove_is_raised_at_once(file: Path, other: sqlite3.Connection) -> None:
    """If two programs have read, they cannot both write. SQLite refuses the second one without a wait."""
    with patient(file) as connection:
        reading = connection.execute("select name from songs")
        reading.fetchone()
        other.execute("begin immediate")
        with pytest.raises(sqlite3.OperationalError, match="database is locked"):
            write(connection)


def test_other_errors_are_not_waited_out(file: Path) -> None:
    with patient(file) as connection, pytest.raises(sqlite3.OperationalError, match="no such table"):
        connection.cursor().execute("select * from films")
