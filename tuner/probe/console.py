"""Reads a trainer's output: hands on every line with its time, and keeps the output in a log of bounded size."""

import os
import queue
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import OutputError
from tuner.probe.lines import LineSplitter
from tuner.probe.mask import NO_MASK, Mask
from tuner.probe.out_dir import make_private
from tuner.probe.protocols import Clock, Line
from tuner.units import BYTES_PER_MIB

FULL_S = 0.1
"""A reader that waits for room in the queue looks again after this many seconds whether the bound is lifted."""
CHUNK_BYTES = 1 << 16
"""The most bytes that are read from the pipe at once: the usual size of a pipe on Linux (pipe(7))."""
LEFT_OUT = b"\n[tuner: the rest of this log is left out]\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """How long the end of a started process may take, and how much of its output is kept."""

    term_grace_s: float = 3.0
    """Seconds between TERM and KILL."""
    kill_s: float = 10.0
    """Seconds that a process has to end after KILL. A process that lives longer hangs inside the kernel; the tuner then
    goes on without it and names it."""
    close_s: float = 10.0
    """Seconds that the console's pipe has to close; after that, something that outlived a killed guard holds it."""
    waiting_chunks: int = 64
    """Chunks of output that may wait to be read; beyond that the trainer waits, so that a flood cannot fill memory."""
    log_bytes: int = 64 * BYTES_PER_MIB
    """The most that the log file takes."""
    tail_bytes: int = BYTES_PER_MIB
    """The most that is read from the progress file at once; a record that does not fit is skipped."""


USUAL_BOUNDS = Bounds()


class Log:
    """A file of at most `room_bytes` bytes, for its owner alone, that remembers the first error in writing it."""

    def __init__(self, path: Path, room_bytes: int = USUAL_BOUNDS.log_bytes) -> None:
        """Open the file. Raises OSError when it cannot be opened."""
        make_private(path)
        self._file = path.open("wb")
        self._room_bytes = room_bytes
        self._error: OSError | None = None

    def write(self, chunk: bytes) -> None:
        """Append a chunk and flush it. Chunks after an error, beyond the bound or after `close` are left out."""
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
        """Raise OutputError when a chunk could not be written."""
        if self._error is not None:
            raise OutputError(
                f"{self._file.name} cannot be written: {self._error.strerror}; free some space and resume"
            )

    def close(self) -> None:
        """Close the file. Harmless to repeat."""
        self._room_bytes = 0
        try:
            self._file.close()
        except OSError as error:
            self._error = error


class Console:
    """Reads a pipe in a thread of its own until the pipe ends, and then closes it."""

    def __init__(
        self,
        pipe: int,
        log: Path,
        clock: Clock,
        origin_s: float,
        *,
        bounds: Bounds = USUAL_BOUNDS,
        mask: Mask = NO_MASK,
    ) -> None:
        """`mask` hides values in the lines and in the log; its stream belongs to this console alone."""
        self._pipe = pipe
        self._clock = clock
        self._origin_s = origin_s
        self._chunks: queue.Queue[list[Line]] = queue.Queue(bounds.waiting_chunks)
        self._log = Log(log, bounds.log_bytes)
        self._bounds = bounds
        self._mask = mask
        self._thread = threading.Thread(target=self._read, name="console", daemon=True)
        self._thread.start()

    def lines(self, timeout_s: float) -> list[Line]:
        """Return the lines read since the last call; wait up to `timeout_s` seconds for the first line.

        Lines that were read at once are returned at once. Raises OutputError when the log cannot be written.
        """
        lines: list[Line] = []
        with suppress(queue.Empty):
            lines += self._chunks.get(timeout=timeout_s)
            for _ in range(self._chunks.qsize()):
                lines += self._chunks.get_nowait()
        self._log.check()
        return lines

    def close(self) -> None:
        """Wait for the end of the pipe, at most `Bounds.close_s` seconds; call this once every writer is gone."""
        self._chunks.maxsize = 0  # no more than a pipe's content is left, and the last lines name the failure
        self._thread.join(self._bounds.close_s)

    def _read(self) -> None:
        splitter = LineSplitter()
        while chunk := os.read(self._pipe, CHUNK_BYTES):
            self._keep(splitter, self._mask.feed(chunk))
        self._keep(splitter, self._mask.close())
        self._hand_on(splitter.close())
        self._log.close()
        os.close(self._pipe)

    def _keep(self, splitter: LineSplitter, chunk: bytes) -> None:
        self._log.write(chunk)
        self._hand_on(splitter.feed(chunk))

    def _hand_on(self, texts: list[str]) -> None:
        now_s = self._clock.now() - self._origin_s
        chunk = [Line(t_s=now_s, text=text) for text in texts]
        while chunk:
            with suppress(queue.Full):
                self._chunks.put(chunk, timeout=FULL_S)
                return
