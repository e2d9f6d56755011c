"""What the pictures of a report have in common: plotly's traces and layouts as plain values of JSON.

The page's own script adds the colours of text and grid, because they depend on the reader's light or dark screen.
"""

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
