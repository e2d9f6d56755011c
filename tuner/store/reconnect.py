"""Connections to a database server that is away for a while, as in a restart, wait until it is back."""

import logging
import time
from collections.abc import Callable
from typing import Any

from sqlalchemy import Dialect, Engine, event

AWAY_S = 120.0
"""That a server is waited for at most: a restart takes seconds, to change over to a standby about a minute."""
PAUSE_S = 1.0
"""Between two attempts."""

_LOG = logging.getLogger(__name__)


def wait_while_away(engine: Engine, away_s: float, sleep: Callable[[float], None] = time.sleep) -> None:
    """Let each new connection of an engine be tried again and again, for `away_s` seconds at most.

    Connections that a restart has cut are noticed, and made anew, where the engine has `pool_pre_ping`; SQLAlchemy
    itself, psycopg and libpq try once. The last attempt's error is raised when the time is over; SQLAlchemy knows it.
    Each wait is logged once.
    """

    @event.listens_for(engine, "do_connect")
    def connect(dialect: Dialect, record: object, arguments: list[Any], options: dict[str, Any]) -> Any:
        end_s, told = time.monotonic() + away_s, False
        while True:
            try:
                return dialect.connect(*arguments, **options)
            except dialect.loaded_dbapi.OperationalError:
                if time.monotonic() >= end_s:
                    raise
            if not told:
                _LOG.warning("the database does not answer; waiting for it, up to %.0f s", away_s)
                told = True
            sleep(PAUSE_S)
