"""A report as one self-contained HTML page. Nothing in it is fetched from a network."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from jinja2 import Environment, PackageLoader, select_autoescape
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from tuner.errors import TunerError
from tuner.export import StudyReader, gain_text, in_words, trials, with_error
from tuner.report import facts
from tuner.report.charts import Picture, parallel, pictures, race_sentence
from tuner.report.facts import CaseFacts, StudyFacts

_FILTERS = {
    "winner": race_sentence,
    "result": facts.case_headline,
    "gain": gain_text,
    "config": in_words,
    "verdict": facts.result_sentences,
    "cost": facts.cost,
    "trials": trials,
    "memory": facts.memory,
    "count": facts.whole_number,
    "when_found": facts.when_found,
    "memory_end": facts.memory_end,
    "pictures": pictures,
}


def render(study: StudyFacts, *, commands: Mapping[str, str], live: str | None = None) -> str:
    """Return the report as the text of a page.

    Args:
        study: what the report tells.
        commands: a case → its command to train with the best config.
        live: the `version` of the study, for a page that loads itself anew when it changes; None for a file.
    """
    return (
        _templates()
        .get_template("report.html")
        .render(
            study=study,
            cases=study.cases,
            headline=facts.study_headline(study),
            explained=facts.explanation(study),
            commands=commands,
            with_error=with_error,
            most=5,  # of the best and of the worst configs, if there are more than twice as many (chosen)
            live=live,
            written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            plotly=_trusted(get_plotlyjs()),
        )
    )


@cache
def _templates() -> Environment:
    """Return the templates of the report, each compiled once. Every value is escaped."""
    environment = Environment(
        loader=PackageLoader("tuner.report"),
        autoescape=select_autoescape(["html"]),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {**_FILTERS, "drawn": _plotly_data, "parallel": _parallel_data}
    return environment


def _plotly_data(picture: Picture) -> Markup:
    """Return what plotly needs of a picture."""
    return _json_markup({"data": picture.data, "layout": picture.layout})


def _parallel_data(case: CaseFacts) -> Markup | None:
    """Return the data of the parallel coordinates of a case; None where there are none."""
    coordinates = parallel(case)
    return _json_markup(asdict(coordinates)) if coordinates else None


def _json_markup(document: dict[str, object]) -> Markup:
    """Return a document as JSON that cannot end the script element that holds it."""
    return _trusted(json.dumps(document, separators=(",", ":")).replace("<", "\\u003c"))


def _trusted(text: str) -> Markup:
    """Return a text marked as HTML: plotly's script, and JSON without the character that opens a tag."""
    return Markup(text)  # noqa: S704


def version(reader: StudyReader) -> str:
    """Return a word that changes with each trial that begins or ends."""
    states = [(case.name, trial.number, str(trial.state)) for case in reader.cases for trial in case.trials]
    return sha256(repr(states).encode()).hexdigest()[:16]


def live_page(read: Callable[[], StudyReader], page: Callable[[StudyReader, str], str]) -> WSGIApplication:
    """Return the application that shows `page` of a study and its version; `read` opens the study anew.

    An error that a user can fix becomes the text of the answer.
    """

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Return the answer to a request: the page for `/`, and its version for `/version`."""
        path = environ.get("PATH_INFO", "/")
        status, kind = "200 OK", "text/plain"
        try:
            if path == "/":
                kind = "text/html"
                reader = read()
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
