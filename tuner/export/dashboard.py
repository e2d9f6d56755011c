"""Shows a study database in optuna-dashboard, on this machine only and, unless asked otherwise, to be read only."""

import importlib.util
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from tuner.errors import TunerError, installs
from tuner.export.database import connect
from tuner.export.served import ARTIFACTS_VARIABLE, LOOPBACK, READ_ONLY, URL_VARIABLE


class DashboardError(TunerError):
    """The dashboard cannot be started: it is not installed, or its port is taken."""


def serve(
    url: str,
    port: int,
    *,
    access: str = READ_ONLY,
    artifacts: Path | None = None,
    ready: Callable[[], None] = lambda: None,
) -> NoReturn:
    """Replace this process by a dashboard of the database at `url`, at http://127.0.0.1:`port`/, until Ctrl-C.

    So no second process can be left behind. The environment carries the URL, because other users can read command
    lines. `access` is READ_ONLY or WRITABLE. `artifacts` is the folder of the trials' files, if there is one. All
    checks have passed when `ready` is called.
    Raises StoreError if the database cannot be read, and DashboardError if the dashboard cannot start.
    """
    connect(url)
    if importlib.util.find_spec("optuna_dashboard") is None:
        raise DashboardError(f"optuna-dashboard is not installed; {installs('dashboard')} installs it")
    _check_free(port)
    ready()
    sys.stdout.flush()
    sys.stderr.flush()
    program = ["-P", "-m", "tuner.export.served"]  # -P: no file in this folder can replace a module
    argv = [sys.executable, *program, str(port), access]
    folder = {} if artifacts is None else {ARTIFACTS_VARIABLE: str(artifacts)}
    os.execve(sys.executable, argv, {**os.environ, URL_VARIABLE: url, **folder})  # noqa: S606 - needs no shell


def _check_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except (OSError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise DashboardError(
                f"the dashboard cannot listen on port {port}: {reason}; choose another with --port"
            ) from error
