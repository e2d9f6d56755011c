"""Makes a text of a database or of a trainer harmless where it is shown: on a terminal, and in Markdown."""

import re

_CONTROL = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters without tab and line break (Unicode's `Cc`), and those that change the direction of writing."""
_MARKDOWN = re.compile(r"[\\`<>\[\]|]")
_TICKS = re.compile("`+")


def printable(text: str) -> str:
    """Return a text without control characters: it cannot move a terminal's cursor, colour it, or hide a part."""
    return _CONTROL.sub("", text)


def markdown(text: str) -> str:
    """Return a text as one line of Markdown that shows it: no HTML, no link, no code and no cell of a table."""
    line = " ".join(re.split(r"[\r\n\u2028\u2029]+", text)).replace("&", "&amp;")
    return _MARKDOWN.sub(lambda found: _ENTITIES.get(found[0], f"\\{found[0]}"), printable(line))


def code(text: str) -> str:
    """Return a text as a span of code in Markdown, whatever backticks it has."""
    line = printable(" ".join(text.splitlines()))
    fence = "`" * (_longest(line) + 1)
    return f"{fence} {line} {fence}" if "`" in line else f"{fence}{line}{fence}"


def fenced(text: str) -> str:
    """Return a text as a block of code in Markdown, whose fence is longer than any run of backticks in it."""
    fence = "`" * max(3, _longest(text) + 1)
    return f"{fence}\n{printable(text)}\n{fence}"


_ENTITIES = {"<": "&lt;", ">": "&gt;"}


def _longest(text: str) -> int:
    return max(map(len, _TICKS.findall(text)), default=0)
