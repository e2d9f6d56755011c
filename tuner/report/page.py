"""A report as one self-contained HTML page, or as Markdown. Nothing in it is fetched from a network."""

import json
import re
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
from tuner.export import StudyReader, gain_text, in_words, printable, trials, with_error
from tuner.report import facts
from tuner.report.charts import Picture, pictures, winner
from tuner.report.facts import CaseFacts, StudyFacts
from tuner.report.parallel import parallel


def markdown(text: str) -> str:
    """Return the Markdown that shows a text as it is, on one line: as no HTML, link, code or cell of a table."""
    line = " ".join(re.split(r"[\r\n\u2028\u2029]+", text)).replace("&", "&amp;")
    entities = {"<": "&lt;", ">": "&gt;"}  # every other mark gets a backslash before it
    return re.sub(r"[\\`<>\[\]|]", lambda match: entities.get(match[0], f"\\{match[0]}"), printable(line))


def fenced(text: str) -> str:
    """Return a text as a block of code in Markdown, whose fence is longer than any run of backticks in it."""
    fence = max(["``", *re.findall("`+", text)], key=len) + "`"
    return f"{fence}\n{printable(text)}\n{fence}"


_FILTERS = {
    "winner": winner,
    "result": facts.result,
    "gain": gain_text,
    "config": in_words,
    "verdict": facts.verdict,
    "cost": facts.cost,
    "trials": trials,
    "memory": facts.memory,
    "count": facts.count,
    "when_found": facts.when_found,
    "memory_end": facts.memory_end,
    "pictures": pictures,
    "fenced": lambda text: Markup(fenced(text)),  # noqa: S704 - of Markdown, and escaped
}


def render(study: StudyFacts, *, form: str, commands: Mapping[str, str], live: str | None = None) -> str:
    """Return the report as text.

    Args:
        study: what the report tells.
        form: `html` or `md`.
        commands: a case → its command to train with the best config.
        live: the `version` of the study, for a page that loads itself anew when it changes; None for a file.
    """
    return (
        _templates(in_markdown=form == "md")
        .get_template(f"report.{form}")
        .render(
            study=study,
            cases=study.cases,
            headline=facts.headline(study),
            explained=facts.explained(study),
            commands=commands,
            with_error=with_error,
            most=5,  # of the best and of the worst configs, if there are more than twice as many (chosen)
            live=live,
            written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            plotly=_trusted(get_plotlyjs()),
        )
    )


@cache
def _templates(in_markdown: bool) -> Environment:
    """Return the templates of the report, each compiled once. Every value is escaped, for HTML or for Markdown."""
    environment = Environment(
        loader=PackageLoader("tuner.report"),
        autoescape=select_autoescape(["html"]),
        finalize=_in_markdown if in_markdown else None,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {**_FILTERS, "drawn": _plotly_data, "parallel": _parallel_data}
    return environment


def _in_markdown(value: object) -> object:
    """Return a value as Markdown shows it; what is Markdown already stays."""
    return markdown(value) if isinstance(value, str) and not isinstance(value, Markup) else value


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
