"""Finds the line of an output that best explains why a process died. Pure."""

from collections.abc import Sequence

from tuner.probe.causes import Causes

NO_OUTPUT = "no output"
_QUOTED = 400
"""Messages show at most this many characters of a line; the console log has the whole line."""


def last_words(causes: Causes, lines: Sequence[str]) -> str:
    """Return the exception that began the crash, or the last of the lines where there was no exception."""
    if causes.any:
        return quoted(causes.any.text)
    return quoted(lines[-1].strip()) if lines else NO_OUTPUT


def quoted(line: str) -> str:
    """Return a line as a message shows it: a long line loses its middle."""
    return line if len(line) <= _QUOTED else f"{line[: _QUOTED // 2]} … {line[-_QUOTED // 2 :]}"
