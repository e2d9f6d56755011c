"""The clock of a study's database. Signs of life are compared on it, because the clocks of two hosts may differ."""

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import sqlalchemy as sql

from tuner.store.leases import STALE_S, Lease


def database_s(url: sql.URL, scalar: Callable[[Any], Any]) -> float:
    """Return the seconds since 1970 on the clock of a database: a server's, or that of the disk that holds the file.

    `scalar` returns the answer to a query of one value.
    """
    if url.get_backend_name() == "sqlite":
        return _disk_s(Path(url.database or "").parent)
    if url.get_backend_name() == "postgresql":
        return float(scalar(sql.select(sql.extract("epoch", sql.func.clock_timestamp()))))
    answer = scalar(sql.select(sql.func.current_timestamp()))
    if isinstance(answer, datetime):
        return (answer if answer.tzinfo else answer.replace(tzinfo=UTC)).timestamp()
    return float(answer)


def _disk_s(folder: Path) -> float:
    """Return when a file that is made now was made: a shared disk's server says it. Without one, ask this host."""
    try:
        with TemporaryFile(dir=folder) as file:
            return os.fstat(file.fileno()).st_mtime
    except OSError:
        return time.time()


def lives_at(now_s: float) -> Callable[[Lease], bool]:
    """Return what says of a lease of another host whether it has given a sign of life lately, in one look.

    `now_s` is the time on the database's clock.
    """
    return lambda lease: now_s - lease.beat < STALE_S
