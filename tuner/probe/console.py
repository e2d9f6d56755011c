"""A trainer's output: every line handed on with its time, and kept in a file of bounded size."""

import os
import queue
import threading
from contextlib import suppress
from pathlib import Path

from tuner.errors import OutputError
from tuner.probe.lines import LineSplitter
from tuner.probe.protocols import Clock, Line
from tuner.units import BYTES_PER_MIB

MAX_LOG_BYTES = 64 * BYTES_PER_MIB
WAITING_LINES = 10_000
"""Lines read but not yet asked for; beyond that the trainer waits, so a flood cannot fill memory."""
FULL_S = 0.1
"""How soon a wait for room notices that there is no bound any more."""
CHUNK_BYTES = 1 << 16
CLOSE_S = 10.0
"""A pipe that stays open for longer is held by what has outlived a killed guard."""
LEFT_OUT = b"\n[tuner: the rest of this log is left out]\n"


class Log:
    """A file that takes MAX_LOG_BYTES at most, and remembers why it could take no more."""

    def __init__(self, path: Path) -> None:
        """Raises OSError when the file cannot be opened."""
        self._file = path.open("wb")
        self._room_bytes = MAX_LOG_BYTES
        self._error: OSError | None = None

    def write(self, chunk: bytes) -> None:
        """Append at once; what comes after an error, beyond the bound or after the end is left out."""
        if self._error is not None or self._room_bytes <= 0:
            return
        kept = chunk[: self._room_bytes]
        self._room_bytes -= len(chunk)
        try:
            self._file.write(kept if self._room_bytes > 0 else kept + LEFT_OUT)
            self._file.flush()
        except OSError as error:
            self._error = error

    def check(self) -> None:
        """Raise OutputError when something could not be written."""
        if self._error is not None:
            raise OutputError(
                f"{self._file.name} cannot be written: {self._error.strerror}; free some space and resume"
            )

    def close(self) -> None:
        """End it. Harmless to repeat."""
        self._room_bytes = 0
        try:
            self._file.close()
        except OSError as error:
            self._error = error


class Console:
    """Reads a pipe in a thread of its own until its end, and closes it then."""

    def __init__(self, pipe: int, log: Path, clock: Clock, origin_s: float) -> None:
        self._pipe = pipe
        self._clock = clock
        self._origin_s = origin_s
        self._lines: queue.Queue[Line] = queue.Queue(WAITING_LINES)
        self._log = Log(log)
        self._closed = False
        self._thread = threading.Thread(target=self._read, name="console", daemon=True)
        self._thread.start()

    def lines(self, timeout_s: float) -> list[Line]:
        """Give the lines read since the last call, waiting up to `timeout_s` for one.

        Raises OutputError when the log cannot be written.
        """
        lines: list[Line] = []
        with suppress(queue.Empty):
            lines.append(self._lines.get(timeout=timeout_s))
            while len(lines) < WAITING_LINES or self._closed:
                lines.append(self._lines.get_nowait())
        self._log.check()
        return lines

    def close(self) -> None:
        """Wait for the end of the pipe, but not for ever; call it once every writer is gone."""
        self._lines.maxsize = 0  # what is left is no more than a pipe holds, and a failure's name stands last
        self._thread.join(CLOSE_S)
        self._closed = True

    def _read(self) -> None:
        splitter = LineSplitter()
        while chunk := os.read(self._pipe, CHUNK_BYTES):
            self._log.write(chunk)
            self._hand_on(splitter.feed(chunk))
        self._hand_on(splitter.close())
        self._log.close()
        os.close(self._pipe)

    def _hand_on(self, texts: list[str]) -> None:
        now_s = self._clock.now() - self._origin_s
        for text in texts:
            self._put(Line(t_s=now_s, text=text))

    def _put(self, line: Line) -> None:
        while True:
            with suppress(queue.Full):
                self._lines.put(line, timeout=FULL_S)
                return
