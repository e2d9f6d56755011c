"""What pictures have in common, and the pictures of what was measured: along the ladder, and over a probe's time."""

import html
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.export.wording import in_words
from tuner.probe.steady import FULL_PCT
from tuner.report.facts import CaseFacts
from tuner.report.words import memory_end
from tuner.search.standing import Standing
from tuner.study.space import rung_of

BEST, FRONT, OTHER, THIRD = "#cf4358", "#2584ad", "#76839a", "#b0731a"
"""Each has a contrast of at least 3 to 1 against the light and the dark background (WCAG 2.2, 1.4.11)."""

Trace = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """A picture and the text around it."""

    name: str
    title: str
    caption: str
    data: list[Trace]
    layout: dict[str, Any]
    height: int = 360


def text(words: str) -> str:
    """Return words as plotly's labels show them: plotly reads a few HTML tags there."""
    return html.escape(words, quote=False)


def short(value: float | None) -> float | None:
    """Return a number with five significant digits; None where it is unknown."""
    return None if value is None else float(f"{value:.5g}")


def errors(known: Iterable[float | None]) -> dict[str, Any]:
    """Return the error bars of some values; an unknown error has no bar."""
    return {"type": "data", "array": [short(error) or 0.0 for error in known], "thickness": 1, "width": 3}


def axis(title: str, **more: Any) -> dict[str, Any]:
    """Return an axis with a title."""
    return {"title": {"text": title}, "zeroline": False, **more}


def upright(at: float, colour: str, *, width: float = 2, dash: str = "dash") -> dict[str, Any]:
    """Return an upright line over the whole picture."""
    line = {"color": colour, "width": width, "dash": dash}
    return {"type": "line", "xref": "x", "yref": "paper", "x0": at, "x1": at, "y0": 0, "y1": 1, "line": line}


def note(at: float, words: str, *, left: bool) -> dict[str, Any]:
    """Return words beside an upright line, to its left or right."""
    anchor = "right" if left else "left"
    return {
        "x": at,
        "y": 0.02,
        "yref": "paper",
        "text": words,
        "showarrow": False,
        "xanchor": anchor,
        "yanchor": "bottom",
    }


MOST_RUNGS = 6
"""About so many rungs are written below the axis; more would not fit beside each other on a phone."""

SHADE = "rgba(37,132,173,0.16)"
MOST_PER_DEVICE = 600
"""A device's line over time has at most this many points; more would not be seen."""
MOST_MARKS = 200
"""At most this many iterations have a line."""


def along_ladder(case: CaseFacts) -> Picture | None:
    """Draw utilisation, SM activity, samples/s and memory against the rungs of the ladder, one below the other."""
    ladder = case.summary.ladder
    points = [point for point in case.points if rung_of(point.config, ladder) is not None]
    rungs = {rung for point in points if (rung := rung_of(point.config, ladder)) is not None}
    if ladder is None or len(rungs) < 2:
        return None
    rows: list[tuple[str, list[Trace]]] = [
        (
            case.objective,
            [_along(case, points, [point.value for point in points], case.objective, colour=FRONT, symbol="square")],
        ),
        (
            "SM active, %",
            [_along(case, points, [point.sm_pct for point in points], "SM active", colour=OTHER, symbol="circle")],
        ),
        (
            "samples/s",
            [
                _along(
                    case, points, [point.samples_per_s for point in points], "samples/s", colour=THIRD, symbol="diamond"
                )
            ],
        ),
        ("memory, %", _memory(case, points)),
    ]
    rows = [(title, [trace for trace in traces if any(y is not None for y in trace["y"])]) for title, traces in rows]
    rows = [(title, traces) for title, traces in rows if traces]
    ticks = _ticks(rungs)
    written = {"tickvals": ticks, "ticktext": [f"{rung:,}" for rung in ticks]}
    layout: dict[str, Any] = {"xaxis": axis(ladder, type="log", **written), "showlegend": False}
    data: list[Trace] = []
    for place, (title, traces) in enumerate(rows):
        number = "" if place == 0 else str(place + 1)
        share = 1.0 / len(rows)
        layout[f"yaxis{number}"] = axis(title, domain=[1.0 - (place + 0.88) * share, 1.0 - place * share], nticks=4)
        data += [{**trace, "xaxis": "x", "yaxis": f"y{number}"} for trace in traces]
    layout["xaxis"]["anchor"] = f"y{len(rows)}" if len(rows) > 1 else "y"
    caption = f"Each dot is a config. {memory_end(case)}".strip()
    return Picture(
        name="ladder", title="Along the ladder", caption=caption, data=data, layout=layout, height=120 + 120 * len(rows)
    )


def _ticks(rungs: Collection[int]) -> list[int]:
    """Return the rungs to write below a logarithmic axis, the largest first, with room between neighbours."""
    apart = (max(rungs) / min(rungs)) ** (1 / MOST_RUNGS)
    chosen: list[int] = []
    for rung in sorted(rungs, reverse=True):
        if not chosen or chosen[-1] >= apart * rung:
            chosen.append(rung)
    return chosen


def _memory(case: CaseFacts, points: Sequence[Standing]) -> list[Trace]:
    traces = [
        _along(
            case,
            points,
            [point.memory_share_pct for point in points],
            "memory in use",
            colour=FRONT,
            symbol="triangle-up",
        )
    ]
    if line := case.memory:
        traces.append(
            {
                "x": [round(rung) for rung in line.rungs],
                "y": [short(share) for share in line.shares],
                "name": "predicted memory",
                "mode": "lines",
                "line": {"color": OTHER, "dash": "dot"},
                "hovertemplate": "predicted: %{y}<extra></extra>",
            }
        )
    if case.out_of_memory:
        traces.append(
            {
                "x": list(case.out_of_memory),
                "y": [100.0] * len(case.out_of_memory),
                "name": "ran out of memory",
                "mode": "markers",
                "marker": {"color": BEST, "symbol": "x", "size": 9},
                "hovertemplate": "%{x}: out of memory<extra></extra>",
            }
        )
    return traces


def over_time(case: CaseFacts) -> Picture | None:
    """Draw the utilisation of each device in the best's newest probe, with its window and its iterations."""
    series = case.series
    if series is None:
        return None
    data = []
    for place, device in enumerate(series.devices):
        times, values = series.of(device, "util_pct", MOST_PER_DEVICE)
        line = {"color": (FRONT, THIRD, OTHER, BEST)[place % 4], "width": 1}
        shares = [min(value, FULL_PCT) for value in values]
        data.append({"x": times, "y": shares, "name": device, "mode": "lines", "line": line})
    if not any(trace["x"] for trace in data):
        return None
    shapes = [upright(t_s, OTHER, width=1, dash="dot") for t_s in series.marks_s[-MOST_MARKS:]]
    if window := series.window_s:
        box = {"type": "rect", "xref": "x", "yref": "paper", "x0": window[0], "x1": window[1], "y0": 0, "y1": 1}
        shapes.insert(0, {**box, "fillcolor": SHADE, "line": {"width": 0}, "layer": "below"})
    trial = case.summary.best.trial if case.summary.best else 0
    return Picture(
        name="over_time",
        title="The best's probe over time",
        caption=f"Utilisation of each device in trial #{trial}. The shaded part is the window that counts; each dotted "
        "line is the end of an iteration.",
        data=data,
        layout={
            "xaxis": axis("seconds since the start of the probe"),
            "yaxis": axis("utilisation, %", range=[0, 103]),
            "shapes": shapes,
        },
    )


def _along(
    case: CaseFacts,
    points: Sequence[Standing],
    values: Sequence[float | None],
    name: str,
    *,
    colour: str,
    symbol: str,
) -> Trace:
    return {
        "x": [rung_of(point.config, case.summary.ladder) for point in points],
        "y": [short(value) for value in values],
        "text": [text(in_words(point.config)) for point in points],
        "hovertemplate": "%{text}<br>%{y}<extra></extra>",
        "name": name,
        "mode": "markers",
        "marker": {"color": [BEST if case.is_best(point) else colour for point in points], "symbol": symbol, "size": 7},
    }
