"""Where the events of a study are shown: as lines on a console, live on a terminal, or as lines of JSON."""

import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TextIO

from rich.console import Console
from rich.live import Live

from tuner.cli.board import Board, line
from tuner.probe.summaries import LOADED
from tuner.running.events import Event, ProbeEnded, to_json

FRAME_S = 0.5
"""The seconds between two pictures of the live view."""
CLOSE_S = 5.0
"""The seconds that the end of a command waits for a terminal that takes no text, for example after Ctrl-S."""


class Screen:
    """Shows what happens in a study; by itself it shows nothing."""

    every_s: float | None = None
    """How many seconds apart a running probe is shown; None where it is not."""

    def show(self, event: Event, worker: str = "") -> None:
        """Show an event; `worker` names the worker of a team that the event comes from."""

    def say(self, text: str, style: str = "") -> None:
        """Show a line of text; `style` is one of rich's styles."""

    def forget(self, worker: str) -> None:
        """Show nothing more of a worker's probe: the worker has ended."""

    def close(self) -> None:
        """Show what is not shown yet, and remove what is live. Harmless to repeat."""


class LineScreen(Screen):
    """Prints a line for each event that has a line."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._load_told = False

    def show(self, event: Event, worker: str = "") -> None:
        """Print the line of an event, behind the name of its worker. The note about other processes is said once."""
        if isinstance(event, ProbeEnded):
            others = tuple(note for note in event.notes if not note.startswith(LOADED))
            is_loaded = others != event.notes
            event = replace(event, notes=others) if self._load_told else event
            self._load_told = self._load_told or is_loaded
        if told := line(event):
            text, style = told
            self.say(f"{worker}: {text.strip()}" if worker else text, style)

    def say(self, text: str, style: str = "") -> None:
        """Print a line."""
        self._console.print(text, style=style)


class JsonScreen(Screen):
    """Writes each event as a line of JSON. Lines of text are for people, who read the standard error."""

    every_s = 1.0

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def show(self, event: Event, worker: str = "") -> None:
        """Write an event."""
        self._stream.write(f"{to_json(event, worker)}\n")
        self._stream.flush()


class LiveScreen(Screen):
    """Prints lines, and keeps a live view below them.

    A thread of its own prints, so that neither rendering nor a terminal that takes no text delays a probe. If rendering
    fails, the lines go on without the live view.
    """

    every_s = FRAME_S

    def __init__(self, console: Console, board: Board) -> None:
        self._lines = LineScreen(console)
        self._board = board
        self._live: Live | None = Live(board, console=console, auto_refresh=False, transient=True)
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="live view", daemon=True)
        self._thread.start()

    def show(self, event: Event, worker: str = "") -> None:
        """Print the line of an event, and take the event into the live view."""
        self._tasks.put(partial(self._board.take, event, worker))
        self._tasks.put(partial(self._lines.show, event, worker))

    def say(self, text: str, style: str = "") -> None:
        """Print a line above the live view."""
        self._tasks.put(partial(self._lines.say, text, style))

    def forget(self, worker: str) -> None:
        """Remove a worker's probe from the live view."""
        self._tasks.put(partial(self._board.forget, worker))

    def close(self) -> None:
        """Print what is left and remove the live view."""
        self._tasks.put(None)
        self._thread.join(CLOSE_S)

    def _run(self) -> None:
        with suppress(OSError):  # the terminal is gone
            self._do(self._start)
            painted_s = time.monotonic()
            while (task := self._next()) is not None:
                self._do(task)
                if time.monotonic() - painted_s >= FRAME_S:
                    self._do(self._paint)
                    painted_s = time.monotonic()
            self._do(self._stop)

    def _next(self) -> Callable[[], None] | None:
        try:
            return self._tasks.get(timeout=FRAME_S)
        except queue.Empty:
            return self._paint

    def _do(self, task: Callable[[], None]) -> None:
        try:
            task()
        except OSError:
            raise
        except Exception:  # noqa: BLE001  a fault of the live view must not hide what is measured
            with suppress(Exception):
                self._stop()
            self._live = None
            task()

    def _start(self) -> None:
        if self._live:
            self._live.start()

    def _paint(self) -> None:
        if self._live:
            self._live.refresh()

    def _stop(self) -> None:
        if self._live:
            self._live.stop()


def open_screen(console: Console) -> Screen:
    """Return a live screen on a terminal, and plain lines on any other output."""
    lively = console.is_terminal and not (console.is_dumb_terminal or console.quiet)
    return LiveScreen(console, Board()) if lively else LineScreen(console)
