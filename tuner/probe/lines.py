"""From raw console bytes to lines of plain text, with a bound on what one line may hold."""

import re

MAX_LINE_BYTES = 16_384
"""Longer lines lose their middle: a log without a newline must not fill memory, and its end may name a failure."""

_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, cursor moves (ECMA-48, control sequences)
    r"|\x1b[\]P^_X][^\x07\x1b]*(?:\x07|\x1b\\)?"  # window titles and other strings
    r"|\x1b[ -/]*[0-~]?"
    r"|[\x00-\x08\x0a-\x1f\x7f-\x9f]"
)


class LineSplitter:
    """Cuts a byte stream at newlines and carriage returns; undecodable bytes become U+FFFD, controls are left out."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[str]:
        """Give the lines that `chunk` completes, empty ones left out."""
        lines = (self._rest + chunk).splitlines()
        whole = chunk.endswith((b"\n", b"\r"))
        self._rest = b"" if whole or not lines else _shortened(lines.pop())
        return [text for line in lines if (text := _text(line))]

    def close(self) -> list[str]:
        """Give the unfinished last line, if there is one."""
        rest, self._rest = self._rest, b""
        return [text] if (text := _text(rest)) else []


def plain(text: str) -> str:
    """Leave out what a terminal would obey instead of showing: colours, cursor moves, bells, NUL; tabs stay."""
    return text if text.isprintable() else _CONTROL.sub("", text)


def _shortened(line: bytes) -> bytes:
    return line if len(line) <= MAX_LINE_BYTES else line[: MAX_LINE_BYTES // 2] + line[-MAX_LINE_BYTES // 2 :]


def _text(line: bytes) -> str:
    return plain(_shortened(line).decode(errors="replace"))
