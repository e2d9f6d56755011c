"""Reads counts in the forms that trainers print, and continues counts that start again. Pure."""

import math
import re

MOST_ITERATIONS = 2**31 - 1
"""The largest iteration that is accepted. Databases store an iteration as a step of 32 bits."""
MOST = 2**53
"""The largest other number that is accepted. Up to this number, a float represents every whole number exactly."""
RESTART_DROP = 5
"""A count has started again if it falls by at least this much, to its first value or below.

A smaller drop is not a restart: when several ranks print, some of them lag behind by an iteration or two.
"""

_NUMERAL = re.compile(r"\d[\d,_]*(?:\.\d+)?(?:[eE][+-]?\d+)?(?:[kKMGB](?![A-Za-z]))?")
_GROUPED = re.compile(r"\d{1,3}(?:[,_]\d{3})+")
_SUFFIXES = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9}


def whole_numeral(line: str, begin: int, end: int) -> str:
    """Return the whole number in a line from `begin` on, of which a pattern may have matched only the first part.

    A pattern such as `\\d+` matches `12` of `12,800`, `1` of `1.28e+04` and `12` of `12.8K`.
    """
    found = _NUMERAL.match(line, begin)
    if found is None or found.end() <= end:
        return line[begin:end]
    text = found[0].rstrip(",_")
    whole = _GROUPED.match(text)
    if ("," in text or "_" in text) and (whole is None or re.search("[,_]", text[whole.end() :])):
        return line[begin:end]  # a list such as `3,4`
    return text


def number(value: object, most: float = MOST, *, least: float = 0.0) -> float | None:
    """Read a number that may be printed as `12,800`, `1.28e+04`, `12.8K` or `1.2M`.

    Returns None for a value that is not a number, is not finite, or is not between `least` and `most`.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = _printed(value) if isinstance(value, str) else float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) and least <= found <= most else None


def _printed(text: str) -> float:
    text = text.strip()
    factor = _SUFFIXES.get(text[-1:], 1.0)
    plain = text[:-1] if factor != 1.0 else text
    return float(_GROUPED.sub(lambda found: re.sub("[,_]", "", found[0]), plain)) * factor


class Unwrapped:
    """A count that continues when the printed count starts again, for example at a new epoch."""

    def __init__(self) -> None:
        self._first: float | None = None
        self._last = 0.0
        self._before = 0.0
        self._epoch: float | None = None

    def __call__(self, printed: float, epoch: float | None = None) -> float:
        """Return the count over all epochs. `epoch` is the number of the epoch if the trainer prints it."""
        if self._first is None:
            self._first = printed
        next_epoch = epoch is not None and self._epoch is not None and epoch > self._epoch
        restarts = printed <= self._first and self._last - printed >= RESTART_DROP
        if printed < self._last and (next_epoch or restarts):
            self._before += self._last
            self._last = printed
        self._last = max(self._last, printed)
        self._epoch = epoch
        return self._before + printed
