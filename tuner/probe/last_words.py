"""Finds the line of an output that best explains why a process died. Pure."""

import re
from collections.abc import Sequence

EXCEPTION = re.compile(r"^(?:\[rank\d+\]: )?(?:\w+\.)*\w*(?:Error|Exception|Interrupt)(?:: |$)")
"""Matches the last line of a Python traceback, with or without the prefix of a rank."""

_SPEECHLESS = re.compile(r"(?:Error|Exception|Interrupt)$")
_FRAME = re.compile(r'^(?:\[rank\d+\]: )?\s+File "(?:[^"]*/)?(?P<file>[^"/]+)", line (?P<line>\d+)')
_RANK_PREFIX = re.compile(r"^\[rank\d+\]: ")
NO_OUTPUT = "no output"
_QUOTED = 400
"""Messages show at most this many characters of a line; the console log has the whole line."""


def last_words(lines: Sequence[str]) -> str:
    """Return the last exception, or the last line where there is none.

    An exception without a message is followed by the statement that raised it.
    """
    if not lines:
        return NO_OUTPUT
    at = max((place for place, line in enumerate(lines) if EXCEPTION.search(line)), default=len(lines) - 1)
    words = lines[at].strip()
    return quoted(f"{words}{_raised_at(lines[:at])}" if _SPEECHLESS.search(words) else words)


def quoted(line: str) -> str:
    """Return a line as a message shows it: a long line loses its middle."""
    return line if len(line) <= _QUOTED else f"{line[: _QUOTED // 2]} … {line[-_QUOTED // 2 :]}"


def _raised_at(lines: Sequence[str]) -> str:
    """Return where the last traceback in the lines ends: ` in agent.py, line 7: assert(n > 0)`."""
    frames = [(place, frame) for place, line in enumerate(lines) if (frame := _FRAME.search(line))]
    if not frames:
        return ""
    place, frame = frames[-1]
    statement = "".join(_RANK_PREFIX.sub("", line).strip() for line in lines[place + 1 : place + 2])
    return f" in {frame['file']}, line {frame['line']}" + (f": {statement}" if statement else "")
