"""Splits raw console bytes into lines of plain text of limited length."""

import re

MAX_LINE_BYTES = 16_384
"""The longest line in bytes. A longer line loses its middle.

The limit keeps a log without newlines from filling the memory. The end of a line stays, because it may name a failure.
"""

_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, cursor moves (ECMA-48, control sequences)
    r"|\x1b[\]P^_X][^\x07\x1b]*(?:\x07|\x1b\\)?"  # window titles and other strings
    r"|\x1b[ -/]*[0-~]?"
    r"|[\x00-\x08\x0a-\x1f\x7f-\x9f]"
)


class LineSplitter:
    """Splits a byte stream at newlines and carriage returns.

    Bytes that are not UTF-8 become U+FFFD. Control sequences are removed.
    """

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[str]:
        """Return the lines that `chunk` completes, without empty lines."""
        lines = (self._rest + chunk).splitlines()
        whole = chunk.endswith((b"\n", b"\r"))
        self._rest = b"" if whole or not lines else _shortened(lines.pop())
        return [text for line in lines if (text := _text(line))]

    def close(self) -> list[str]:
        """Return the unfinished last line in a list, or an empty list."""
        rest, self._rest = self._rest, b""
        return [text] if (text := _text(rest)) else []


def plain(text: str) -> str:
    """Remove the characters that control a terminal: colours, cursor moves, bells and NUL. Tabs stay."""
    return text if text.isprintable() else _CONTROL.sub("", text)


def _shortened(line: bytes) -> bytes:
    return line if len(line) <= MAX_LINE_BYTES else line[: MAX_LINE_BYTES // 2] + line[-MAX_LINE_BYTES // 2 :]


def _text(line: bytes) -> str:
    return plain(_shortened(line).decode(errors="replace"))
