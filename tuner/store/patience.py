"""SQLite connections that wait for a locked file in short slices. While SQLite waits, Python hears no Ctrl-C."""

import sqlite3
import time
from collections.abc import Callable
from typing import Any, TypeVar

SLICE_S = 0.5
"""How long SQLite waits at a time."""

Answer = TypeVar("Answer")


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
