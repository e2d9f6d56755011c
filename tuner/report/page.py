"""A report as one self-contained HTML page, or as Markdown. Nothing in it is fetched from a network."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from jinja2 import Environment, PackageLoader, select_autoescape
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from tuner.export.words import in_words, with_error
from tuner.report.facts import CaseFacts
from tuner.report.pictures import PICTURES
from tuner.report.words import cost, verdict

_BEST_FIRST = 5
"""The number of best configs, and of worst configs, that are listed for each case."""


def render(study: str, cases: Sequence[CaseFacts], *, form: str, commands: Mapping[str, str]) -> str:
    """Return the report as text: `form` is `html` or `md`. `commands` hold a training command for each case."""
    environment = Environment(
        loader=PackageLoader("tuner.report"),
        autoescape=select_autoescape(["html"]),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"config": in_words, "verdict": verdict, "cost": cost, "pictures": _pictures}
    template = environment.get_template(f"report.{form}")
    return template.render(
        study=study,
        cases=cases,
        methods=list(_methods(cases)),
        commands=commands,
        with_error=with_error,
        most=_BEST_FIRST,
        written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        plotly=_trusted(get_plotlyjs()) if form == "html" else "",
    )


def _pictures(case: CaseFacts) -> list[Markup]:
    shown = {"displayModeBar": False, "responsive": True}
    figures = filter(None, (draw(case) for draw in PICTURES))
    return [_trusted(one.to_html(full_html=False, include_plotlyjs=False, config=shown)) for one in figures]


def _trusted(text: str) -> Markup:
    """Mark what plotly writes as HTML. Plotly escapes texts of a study within its scripts by itself."""
    return Markup(text)  # noqa: S704


def _methods(cases: Iterable[CaseFacts]) -> Iterable[tuple[str, int, int, float | None]]:
    """Yield for each method: its name, its cases with a best, all its cases, and the mean objective of the best."""
    by_method: dict[str, list[CaseFacts]] = {}
    for case in cases:
        by_method.setdefault(case.method, []).append(case)
    for method, members in by_method.items():
        values = [one.summary.best.value for one in members if one.summary.best and one.summary.best.value is not None]
        yield method, len(values), len(members), sum(values) / len(values) if values else None
