"""The live page of a study: `/` is its report as it stands, and `/version` changes when the report would."""

from collections.abc import Callable, Iterable
from hashlib import sha256
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from tuner.errors import TunerError
from tuner.export import StudyReader


def version(reader: StudyReader) -> str:
    """Return a word that changes with each trial that begins or ends."""
    known = [(case.name, trial.number, str(trial.state)) for case in reader.cases for trial in case.trials]
    return sha256(repr(known).encode()).hexdigest()[:16]


def live_page(read: Callable[[], StudyReader], page: Callable[[StudyReader, str], str]) -> WSGIApplication:
    """Return the application that shows `page` of a study and its version; `read` opens the study anew.

    An error that a user can fix becomes the text of the answer.
    """

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Return the answer to a request."""
        path, status, kind = environ.get("PATH_INFO", "/"), "200 OK", "text/plain"
        try:
            if path == "/":
                reader, kind = read(), "text/html"
                text = page(reader, version(reader))
            elif path == "/version":
                text = version(read())
            else:
                status, text = "404 Not Found", "there is only / and /version\n"
        except TunerError as error:
            status, kind, text = "503 Service Unavailable", "text/plain", f"{error}\n"
        start_response(status, [("Content-Type", f"{kind}; charset=utf-8"), ("Cache-Control", "no-store")])
        return [text.encode()]

    return answer
