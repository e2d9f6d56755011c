"""Serves optuna-dashboard on this machine only: `python -m tuner.export.served PORT`."""

import importlib.util
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO, NoReturn
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIRequestHandler, make_server
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from tuner.errors import TunerError, installs
from tuner.export.reader import connect

LOOPBACK = "127.0.0.1"
LOCAL = {LOOPBACK, "localhost", "::1"}
"""The names by which a browser on this machine, or behind a tunnel to it, asks for the dashboard."""
URL_VARIABLE = "TUNER_DASHBOARD_STORAGE"
"""The environment variable with the database's URL, because other users can read command lines."""
ARTIFACTS_VARIABLE = "TUNER_DASHBOARD_ARTIFACTS"
"""The environment variable with the folder of the trials' files; missing where there is none."""
EVERYONE = "Access-Control-Allow-Origin"
"""The header with which optuna-dashboard would let the pages of any site read the files of a trial."""


def guarded(app: WSGIApplication) -> WSGIApplication:
    """Return an application that refuses foreign requests with 403 and passes all others on to `app`."""

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Return the answer to a request."""
        why = refusal(environ.get)
        if why is None:
            return app(environ, _to_this_machine(start_response))
        start_response("403 Forbidden", [("Content-Type", "text/plain; charset=utf-8")])
        return [why.encode()]

    return answer


def refusal(header: Callable[[str, str], str]) -> str | None:
    """Return why a request is refused; None where it is not. `header` looks up WSGI variables, with a default."""
    try:
        host = urlsplit(f"//{header('HTTP_HOST', '')}").hostname
    except ValueError:
        host = None
    if host not in LOCAL:
        return f"this dashboard answers only requests to {LOOPBACK} or localhost, not to {host or 'an unnamed host'}\n"
    if header("REQUEST_METHOD", "") not in {"GET", "HEAD", "OPTIONS"}:
        return "this dashboard is read-only; optuna-dashboard itself changes studies\n"
    return None


def _to_this_machine(start_response: StartResponse) -> StartResponse:
    """Return a `start_response` without the header that lets other sites read an answer."""

    def start(status: str, headers: list[tuple[str, str]], *more: Any) -> Callable[[bytes], object]:
        return start_response(
            status, [(name, text) for name, text in headers if name.lower() != EVERYONE.lower()], *more
        )

    return start


class Artifacts:
    """The files of trials in one folder, by their names; nothing is written. Optuna's protocol `ArtifactStore`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open_reader(self, artifact_id: str) -> BinaryIO:
        """Return a file, opened. Raises OSError where it is gone."""
        return (self._folder / Path(artifact_id).name).open("rb")

    def write(self, artifact_id: str, content_body: BinaryIO) -> None:
        """Refuse."""
        raise PermissionError("these files are to be read only")

    def remove(self, artifact_id: str) -> None:
        """Refuse."""
        raise PermissionError("these files are to be read only")


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Keep requests out of the terminal."""


def main() -> None:
    """Serve the database that the environment names until Ctrl-C."""
    from optuna_dashboard import wsgi  # noqa: PLC0415 - an extra that only this process needs

    signal.signal(signal.SIGINT, signal.SIG_DFL)  # wsgiref swallows a KeyboardInterrupt that falls into a request
    folder = os.environ.pop(ARTIFACTS_VARIABLE, None)
    store = Artifacts(Path(folder)) if folder else None
    app = guarded(wsgi(os.environ.pop(URL_VARIABLE), artifact_store=store))
    with make_server(LOOPBACK, int(sys.argv[1]), app, handler_class=_Quiet) as server:
        server.serve_forever()


if __name__ == "__main__":
    main()


class DashboardError(TunerError):
    """The dashboard cannot be started: it is not installed, or its port is taken."""


def serve(
    url: str,
    port: int,
    *,
    artifacts: Path | None = None,
    ready: Callable[[], None] = lambda: None,
) -> NoReturn:
    """Never return: this process becomes a dashboard of the database at `url`, at http://127.0.0.1:`port`/.

    So no second process can be left behind. The environment carries the URL, because other users can read command
    lines. `artifacts` is the folder of the trials' files, if there is one. All checks have passed when `ready` runs.
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
    argv = [sys.executable, *program, str(port)]
    folder = {} if artifacts is None else {ARTIFACTS_VARIABLE: str(artifacts)}
    os.execve(sys.executable, argv, {**os.environ, URL_VARIABLE: url, **folder})  # noqa: S606 - needs no shell


def _check_free(port: int) -> None:
    """Raise DashboardError where a port cannot be listened on."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except (OSError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise DashboardError(
                f"the dashboard cannot listen on port {port}: {reason}; choose another with --port"
            ) from error
