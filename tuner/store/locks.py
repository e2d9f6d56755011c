"""The one lock of a database under which trials are handed out: a file beside SQLite, advisory on PostgreSQL."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from filelock import FileLock, Timeout
from sqlalchemy import Connection, func, select
from sqlalchemy.exc import OperationalError

from tuner.errors import StoreError

LOCK_S = 120.0
"""How long a worker waits for the lock. A worker needs the lock for seconds; one that holds it longer hangs."""
_ADVISORY_LOCK = 0x74756E65  # "tune": one lock for all studies of a PostgreSQL database
_LOCK_NOT_AVAILABLE = "55P03"
"""PostgreSQL's error code when `lock_timeout` has passed."""

Held = Callable[[str], StoreError]
"""Returns the error that says who holds the lock."""


def file_lock(file: str, lock_s: float, held: Held) -> AbstractContextManager[object]:
    """Return the held lock of a file. Raises the error of `held` where another process keeps it."""
    try:
        return FileLock(file).acquire(timeout=lock_s)
    except Timeout as error:
        raise held(f"`fuser {file}` names the processes that have the lock file open") from error


def take_advisory_lock(connection: Connection, lock_s: float, held: Held) -> None:
    """Take the lock until the connection's transaction ends. Raises the error of `held` where another keeps it."""
    try:
        connection.execute(select(func.set_config("lock_timeout", f"{1000 * lock_s:.0f}", True)))
        connection.execute(select(func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
    except OperationalError as error:
        if getattr(error.orig, "sqlstate", None) != _LOCK_NOT_AVAILABLE:
            raise
        raise held("the server's pg_locks and pg_stat_activity name the process (locktype advisory)") from error
