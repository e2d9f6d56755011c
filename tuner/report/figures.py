"""What all pictures have in common: colours, lines and dots, axes, and error bars."""

import html
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

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


def trace(x: Iterable[Any], y: Iterable[Any], name: str, *, hover: str | None = None, **more: Any) -> Trace:
    """Return a series of dots, or what `more` says, with short numbers; `hover` is what the pointer shows of a dot."""
    numbers = ([short(one) if isinstance(one, float) else one for one in values] for values in (x, y))
    shown = {} if hover is None else {"hovertemplate": f"{hover}<extra></extra>"}
    return {**dict(zip("xy", numbers, strict=True)), "name": name, "mode": "markers", **shown, **more}


def bars(x: Iterable[float], y: list[str], name: str, colour: str, *, hover: str) -> Trace:
    """Return lying bars, one for each of the names `y`."""
    bar = {"type": "bar", "orientation": "h", "name": name, "marker": {"color": colour}}
    return {**bar, "x": [short(one) for one in x], "y": y, "hovertemplate": f"{hover}<extra>%{{fullData.name}}</extra>"}


def dots(colour: str | list[str], *, size: int = 7, symbol: str = "circle") -> Trace:
    """Return how the dots of a series look."""
    return {"color": colour, "size": size, "symbol": symbol}


def errors(known: Iterable[float | None]) -> dict[str, Any]:
    """Return the error bars of some values; an unknown error has no bar."""
    return {"type": "data", "array": [short(error) or 0.0 for error in known], "thickness": 1, "width": 3}


def axis(title: str, **more: Any) -> dict[str, Any]:
    """Return an axis with a title."""
    return {"title": {"text": title}, "zeroline": False, **more}


NAMES = {**axis(""), "autorange": "reversed", "automargin": True}
"""The axis of names, the first at the top."""


def upright(at: float, colour: str, *, width: float = 2, dash: str = "dash") -> dict[str, Any]:
    """Return an upright line over the whole picture."""
    line = {"color": colour, "width": width, "dash": dash}
    return {"type": "line", "xref": "x", "yref": "paper", "x0": at, "x1": at, "y0": 0, "y1": 1, "line": line}


def note(at: float, words: str, *, left: bool) -> dict[str, Any]:
    """Return words beside an upright line, to its left or right."""
    place = {"x": at, "y": 0.02, "yref": "paper", "xanchor": "right" if left else "left", "yanchor": "bottom"}
    return {**place, "text": words, "showarrow": False}
