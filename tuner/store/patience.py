"""SQLite connections that wait for a locked file in slices, because Python hears no Ctrl-C while SQLite waits."""

import sqlite3
import time
from collections.abc import Callable
from typing import Any, TypeVar

SLICE_S = 0.5
"""SQLite waits so long at a time."""

Answer = TypeVar("Answer")


class PatientConnection(sqlite3.Connection):
    """Waits for others to let go of the file as long as its `timeout` says.

    What SQLite refuses at once, because no waiting would help, is refused here, too. `executemany`, which Optuna does
    not use, waits for one slice.
    """

    def __init__(self, database: str, timeout: float = 5.0, **options: Any) -> None:
        super().__init__(database, timeout=min(timeout, SLICE_S), **options)
        self.patience_s = timeout

    def cursor(self, factory: Any = None) -> Any:
        """Give a cursor that waits alike."""
        return super().cursor(factory or (lambda _: _PatientCursor(self)))

    def commit(self) -> None:
        """Commit; those who still read are waited for."""
        self.patiently(super().commit)

    def patiently(self, call: Callable[..., Answer], *arguments: Any) -> Answer:
        """Make a call again each time SQLite has given it up after a slice."""
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
