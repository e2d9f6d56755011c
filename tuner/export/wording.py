"""How values, configs and texts are written in words, and how foreign texts become harmless on a terminal."""

import re
from collections.abc import Iterable, Mapping
from math import floor, log10
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.probe import ITERATIONS_PER_S, SAMPLES_PER_S, FailureKind, duration
from tuner.study import Value, grouped, value_text

if TYPE_CHECKING:
    from tuner.export.summary import CaseSummary

_CONTROL = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters without tab and line break (Unicode's `Cc`), and those that change the direction of writing."""


def printable(text: str) -> str:
    """Return a text without control characters: it cannot move a terminal's cursor, colour it, or hide a part."""
    return _CONTROL.sub("", text)


EXHAUSTED = "no further probe pays"
"""How a search says that it has ended by itself."""


def relative_to_cwd(path: Path) -> Path:
    """Return a path as messages show it: relative to the working directory if it lies below that, else as it is."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def in_words(config: Mapping[str, Value]) -> str:
    """Return a config as one line of NAME=VALUE."""
    return " ".join(f"{name}={value_text(value)}" for name, value in config.items())


SPEEDS = {SAMPLES_PER_S: "samples/s", ITERATIONS_PER_S: "iterations/s"}
"""The objectives that are speeds → how a person says them."""


def unit(objective: str) -> str:
    """Return what a person calls the values of an objective: `samples/s`, or the name of a metric."""
    return SPEEDS.get(objective, objective)


def figure(value: float) -> str:
    """Return a number of any size as text: four significant digits, or all digits before the decimal point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def score_text(value: float, error: float | None) -> str:
    """Return the score of a race as text; its standard error has two digits if it is known, and the score as many."""
    if not error or error < 1e-9 * abs(value):  # the runs differ by nothing but rounding
        return figure(value)
    return _plus_minus(value, error, max(0, 1 - floor(log10(error))))  # a score may be below 0


def _decimals(value: float, error: float | None) -> int:
    """Return how many digits of a value to show after the point: enough for its error, and few to read.

    - A value of 1,000 or more: none, unless its error is above 0 and at most 0.5. Then it is shown as any other value.
    - A value from 10 to 1,000: one, because it is mostly a percentage, and these stand below each other in a table.
    - Any other value: one, or two if its error is below 0.05, or three if it is below 0.005.
    """
    is_large = abs(value) >= 1000
    has_small_error = error is not None and 0 < error <= 0.5
    if is_large and not has_small_error:
        return 0
    is_middling = 10 <= abs(value) < 1000
    if is_middling or error is None or error >= 0.05:
        return 1
    return 2 if error >= 0.005 else 3


def with_error(value: float, error: float | None, decimals: int | None = None) -> str:
    """Return a value as text, with its standard error if that is known, such as `12.3 ± 0.4`.

    No measured value is below 0, so an error above the value only says how large that may be: `12.3 (at most 43.1)`
    adds two standard errors. Without `decimals`, all numbers have as many as suit them.
    """
    decimals = _decimals(value, error) if decimals is None else decimals
    if error is not None and error > value >= 0.0:
        return f"{value:,.{decimals}f} (at most {value + 2.0 * error:,.{decimals}f})"
    return _plus_minus(value, error, decimals)


def _plus_minus(value: float, error: float | None, decimals: int) -> str:
    """Return a value and its error, if that is known, with so many decimals."""
    return " ± ".join(f"{number:,.{decimals}f}" for number in (value, error) if number is not None)


def trials(row: "CaseSummary") -> str:
    """Return the number of trials of a case by how they ended; empty where there are none."""
    ends = ("ok", "pruned", "failed", "interrupted", "running")
    return ", ".join(f"{number} {end}" for end in ends if (number := getattr(row, end)))


def in_use(seconds: float, devices: int) -> str:
    """Return for how long probes have used some devices."""
    return f"{duration(seconds)} on {devices} device{'s' if devices > 1 else ''}"


def no_best(*cases: str) -> str:
    """Return what to say where cases have no best config, and a command needs one."""
    return f"no best config yet for {', '.join(cases)}; `tuner status` shows where the study stands"


def remedy(kind: FailureKind, case: str) -> str:
    """Return what the user can do about a kind of failure."""
    return kind.remedy or f"read the newest console.log under probes/{case}"


def at_its_end(why: str) -> str:
    """Return why a search ended by itself."""
    return f"{EXHAUSTED}: {why}"


def merged_lines(texts: Iterable[tuple[str, str]]) -> list[str]:
    """Return a line for each different text, behind the names that it is about; `texts` are pairs of a name and a text.

    For example, `a` and `b` with the same text become `a, b: text`.
    """
    by_text = grouped(texts, itemgetter(1))
    return [f"{', '.join(dict.fromkeys(name for name, _ in pairs))}: {text}" for text, pairs in by_text.items()]
