"""The pictures of a report, as plotly figures. Each is drawn from `CaseFacts` alone."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import plotly.graph_objects as go

from tuner.export.words import in_words
from tuner.report.facts import CaseFacts, Point

BEST, FRONT, OTHER = "#d1495b", "#2e86ab", "#8d99ae"
_LAYOUT: dict[str, Any] = {
    "margin": {"l": 60, "r": 20, "t": 40, "b": 50},
    "height": 380,
    "paper_bgcolor": "rgba(0,0,0,0)",
    "plot_bgcolor": "rgba(0,0,0,0)",
    "font": {"color": "#7a8190"},
    "legend": {"orientation": "h", "y": -0.25},
}
_GRID: dict[str, Any] = {"gridcolor": "rgba(128,128,128,0.25)", "zerolinecolor": "rgba(128,128,128,0.4)"}


def choices(case: CaseFacts) -> go.Figure | None:
    """Draw the objective against samples/s of all measured configs, with the configs that no other beats in both."""
    known = [point for point in case.points if point.samples_per_s is not None]
    if not known:
        return None
    front = sorted((point for point in known if point.on_front), key=lambda point: point.samples_per_s or 0.0)
    figure = go.Figure()
    figure.add_trace(_dots([point for point in known if not point.on_front], "measured", OTHER))
    figure.add_trace(_dots(front, "no other is better in both", FRONT, mode="lines+markers"))
    figure.add_trace(_dots([point for point in known if point.is_best], "the best", BEST, size=14))
    figure.update_layout(title="What else could be chosen", **_LAYOUT)
    figure.update_xaxes(title="samples per second", **_GRID)
    figure.update_yaxes(title=case.objective, **_GRID)
    return figure


def history(case: CaseFacts) -> go.Figure | None:
    """Draw each measurement and the best so far against the device-seconds of the search."""
    if not case.points:
        return None
    best = list(accumulate((point.value for point in case.points), max))
    seconds = [point.ended_s for point in case.points]
    figure = go.Figure()
    figure.add_trace(_dots(case.points, "a trial", OTHER, across=seconds))
    figure.add_trace(go.Scatter(x=seconds, y=best, name="best so far", line={"color": BEST, "shape": "hv"}))
    figure.update_layout(title="The search", **_LAYOUT)
    figure.update_xaxes(title="device-seconds", **_GRID)
    figure.update_yaxes(title=case.objective, **_GRID)
    return figure


def ladder(case: CaseFacts) -> go.Figure | None:
    """Draw the objective and the share of memory in use against the rungs of the ladder."""
    on_rungs = [point for point in case.points if point.rung is not None]
    if len({point.rung for point in on_rungs}) < 2:
        return None
    figure = go.Figure()
    figure.add_trace(_dots(on_rungs, case.objective, FRONT, across=[point.rung for point in on_rungs]))
    figure.add_trace(
        go.Scatter(
            x=[point.rung for point in on_rungs],
            y=[point.mem_share_pct for point in on_rungs],
            name="memory in use, % of the device",
            mode="markers",
            marker={"color": OTHER, "symbol": "triangle-up"},
        )
    )
    figure.update_layout(title="Along the ladder", **_LAYOUT)
    figure.update_xaxes(title="num_envs", type="log", **_GRID)
    figure.update_yaxes(title="%", **_GRID)
    return figure


def spending(case: CaseFacts) -> go.Figure | None:
    """Draw what the device-seconds were spent on."""
    if not case.spent_s:
        return None
    names, seconds = list(case.spent_s), list(case.spent_s.values())
    figure = go.Figure(go.Bar(x=seconds, y=names, orientation="h", marker={"color": FRONT}))
    figure.update_layout(title="Where the device-seconds went", **{**_LAYOUT, "height": 120 + 36 * len(names)})
    figure.update_xaxes(title="device-seconds", **_GRID)
    figure.update_yaxes(autorange="reversed", automargin=True)
    return figure


PICTURES = (choices, history, ladder, spending)


def _dots(
    points: Sequence[Point],
    name: str,
    colour: str,
    *,
    across: Sequence[float | None] | None = None,
    mode: str = "markers",
    size: int = 8,
) -> go.Scatter:
    return go.Scatter(
        x=across if across is not None else [point.samples_per_s for point in points],
        y=[point.value for point in points],
        error_y={"type": "data", "array": [point.error or 0.0 for point in points], "thickness": 1},
        text=[f"#{point.trial} {in_words(point.config)}" for point in points],
        hovertemplate="%{text}<br>%{y:.1f}<extra></extra>",
        name=name,
        mode=mode,
        marker={"color": colour, "size": size},
    )
