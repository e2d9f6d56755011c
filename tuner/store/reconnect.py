"""Makes new connections to a database server wait while the server is away, for example during a restart."""

import logging
import time
from collections.abc import Callable
from typing import Any

from sqlalchemy import Dialect, Engine, ExceptionContext, event

AWAY_S = 120.0
"""How long to wait for a server. A restart takes seconds, and a change to a standby server about a minute."""
PAUSE_S = 1.0
"""The seconds between two attempts."""


class ConnectionLostError(Exception):
    """The connection was lost during a statement. Optuna knows no such error, so it passes through Optuna at once."""


class RolledBackError(Exception):
    """Something goes on in a transaction that an error has ended; its cause is that error."""


_LOG = logging.getLogger(__name__)


def wait_while_away(engine: Engine, away_s: float, sleep: Callable[[float], None] = time.sleep) -> None:
    """Let an engine try each new connection again and again, for at most `away_s` seconds.

    SQLAlchemy, psycopg and libpq try only once. An engine with `pool_pre_ping` also replaces connections that a restart
    has cut. After `away_s` seconds the last attempt's error is raised. Each wait is logged once.
    """

    @event.listens_for(engine, "do_connect")
    def connect(dialect: Dialect, record: object, arguments: list[Any], options: dict[str, Any]) -> Any:
        end_s, logged = time.monotonic() + away_s, False
        while True:
            try:
                return dialect.connect(*arguments, **options)
            except dialect.loaded_dbapi.OperationalError:
                if time.monotonic() >= end_s:
                    raise
            if not logged:
                _LOG.warning("the database does not answer; waiting for it, up to %.0f s", away_s)
                logged = True
            sleep(PAUSE_S)


def notice_losses(engine: Engine) -> None:
    """Let an engine raise ConnectionLostError where a connection is lost during a statement or a commit."""

    @event.listens_for(engine, "handle_error")
    def lost(context: ExceptionContext) -> None:
        if context.is_disconnect and context.connection is not None:
            raise ConnectionLostError(str(context.original_exception)) from context.original_exception
