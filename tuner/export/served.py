"""Serves a page on this machine only; optuna-dashboard by `python -m tuner.export.served PORT`."""

import importlib.util
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterable
from typing import NoReturn
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIRequestHandler, make_server
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from tuner.errors import TunerError, installs
from tuner.export.reader import connect

LOOPBACK = "127.0.0.1"
URL_VARIABLE = "TUNER_DASHBOARD_STORAGE"
"""The environment variable with the database's URL, because other users can read command lines."""


def guarded(app: WSGIApplication) -> WSGIApplication:
    """Return an application that answers 403 to what `refusal` refuses, and passes all other requests on to `app`.

    Only a browser on this machine may read, and nobody may write.
    """

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Return the answer to a request."""
        why = refusal(environ.get)
        if why is None:
            return app(environ, start_response)
        start_response("403 Forbidden", [("Content-Type", "text/plain; charset=utf-8")])
        return [why.encode()]

    return answer


def refusal(header: Callable[[str, str], str]) -> str | None:
    """Return why a request is refused; None for a request that is answered.

    `header` returns a WSGI variable, or the default for one that is missing.
    """
    try:
        host = urlsplit(f"//{header('HTTP_HOST', '')}").hostname
    except ValueError:
        host = None
    # a browser on this machine, or behind a tunnel to it, asks for these; a foreign page that uses it asks for others
    if host not in {LOOPBACK, "localhost", "::1"}:
        return f"this page answers only requests to {LOOPBACK} or localhost, not to {host or 'an unnamed host'}\n"
    if header("REQUEST_METHOD", "") not in {"GET", "HEAD", "OPTIONS"}:
        return "this page is read-only; optuna-dashboard itself changes studies\n"
    return None


class _QuietHandler(WSGIRequestHandler):
    """Handles requests without a line for each."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Keep requests out of the terminal."""


def main() -> None:
    """Serve the database that the environment names until Ctrl-C."""
    from optuna_dashboard import wsgi  # noqa: PLC0415 - an extra that only this process needs

    serve_forever(wsgi(os.environ.pop(URL_VARIABLE)), int(sys.argv[1]))


def serve_forever(app: WSGIApplication, port: int) -> NoReturn:
    """Answer requests of this machine until Ctrl-C ends the process."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # wsgiref swallows a KeyboardInterrupt that falls into a request
    with make_server(LOOPBACK, port, guarded(app), handler_class=_QuietHandler) as server:
        server.serve_forever()
    raise SystemExit


def serve(url: str, port: int, *, ready: Callable[[], None] = lambda: None) -> NoReturn:
    """Never return: this process becomes a dashboard of the database at `url`, at http://127.0.0.1:`port`/.

    So no second process can be left behind. All checks have passed when `ready` runs.
    Raises StoreError if the database cannot be read, and TunerError if the dashboard cannot start.
    """
    connect(url)  # called for its StoreError
    if importlib.util.find_spec("optuna_dashboard") is None:
        raise TunerError(f"optuna-dashboard is not installed; {installs('dashboard')} installs it")
    check_free(port)
    ready()
    sys.stdout.flush()
    sys.stderr.flush()
    program = ["-P", "-m", "tuner.export.served"]  # -P: no file in this folder can replace a module
    argv = [sys.executable, *program, str(port)]
    os.execve(sys.executable, argv, {**os.environ, URL_VARIABLE: url})  # noqa: S606 - needs no shell


def check_free(port: int) -> None:
    """Raise TunerError where a port cannot be listened on."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does: old connections do not count
        try:
            probe.bind((LOOPBACK, port))
        except (OSError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise TunerError(f"tuner cannot listen on port {port}: {reason}; choose another with --port") from error


if __name__ == "__main__":
    main()
