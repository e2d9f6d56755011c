"""Where the progress of a study is shown: on a console, or as JSON lines that the parent of a worker reads."""

import json
from typing import Protocol, TextIO

from rich.console import Console
from rich.status import Status
from rich.text import Text


class Screen(Protocol):
    """Shows lines that stay, and one live line that is replaced."""

    def line(self, text: str, style: str = "") -> None:
        """Show a line that stays; `style` is one of rich's styles."""
        ...

    def now(self, text: str | None) -> None:
        """Replace the live line; None removes it."""
        ...


class ConsoleScreen:
    """Shows a study on a console. The live line appears only on a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status: Status | None = None

    def line(self, text: str, style: str = "") -> None:
        """Print a line above the live line."""
        self._console.print(text, style=style, markup=False)

    def now(self, text: str | None) -> None:
        """Replace the live line; None removes it."""
        if text is None:
            if self._status is not None:
                self._status.stop()
            self._status = None
        elif self._console.is_terminal:
            if self._status is None:
                self._status = self._console.status("")
                self._status.start()
            self._status.update(Text(text))


class JsonScreen:
    """Writes each line as a JSON object: `{"line": …, "style": …}`, or `{"now": …}` for the live line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def line(self, text: str, style: str = "") -> None:
        """Write a line that stays."""
        self._write({"line": text, "style": style})

    def now(self, text: str | None) -> None:
        """Write the new live line."""
        self._write({"now": text})

    def _write(self, event: dict[str, str | None]) -> None:
        self._stream.write(f"{json.dumps(event)}\n")
        self._stream.flush()
