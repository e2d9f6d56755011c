"""From raw console bytes to lines, with a bound on what one line may hold."""

MAX_LINE_BYTES = 16_384
"""Longer lines lose their middle: a log without a newline must not fill memory, and its end may name a failure."""


class LineSplitter:
    """Cuts a byte stream at newlines and carriage returns; undecodable bytes become U+FFFD."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[str]:
        """Give the lines that `chunk` completes, empty ones left out."""
        lines = (self._rest + chunk).splitlines()
        whole = chunk.endswith((b"\n", b"\r"))
        self._rest = b"" if whole or not lines else _shortened(lines.pop())
        return [_text(line) for line in lines if line]

    def close(self) -> list[str]:
        """Give the unfinished last line, if there is one."""
        rest, self._rest = self._rest, b""
        return [_text(rest)] if rest else []


def _shortened(line: bytes) -> bytes:
    return line if len(line) <= MAX_LINE_BYTES else line[: MAX_LINE_BYTES // 2] + line[-MAX_LINE_BYTES // 2 :]


def _text(line: bytes) -> str:
    return _shortened(line).decode(errors="replace")
