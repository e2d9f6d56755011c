"""Reads what a trainer writes: the lines of its console, the log of them, and the end of a file that grows.

The values of environment variables are hidden there: a reference `${NAME}` stands in their place.
"""

import codecs
import errno
import json
import os
import queue
import re
import stat
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import OutputError
from tuner.probe.out_dir import make_private
from tuner.probe.protocols import Clock, OutputLine
from tuner.probe.units import BYTES_PER_MIB

LEAST_CHARACTERS = 8
"""A shorter value is not hidden, because other texts contain it by chance (as GitLab CI's masked variables)."""
LEAST_OF_A_KIND = 16
"""A shorter value of letters alone, or that may be a number or a time, is not hidden: lines with progress hold such."""
_OF_A_KIND = re.compile(r"[^\W\d_]+|[-+.,:/\deE]+")


_CODE = rb"\x1b\[[0-9;:]*[A-Za-z]"
_COLOURED = re.compile(_CODE)
_CODE_OR_BEGUN = re.compile(_CODE + rb"|\x1b(?:\[[0-9;:]*)?$")
MOST_WAITING = 4096
"""The most bytes at the end of a chunk that wait because they may begin a value."""


class Mask:
    """Replaces values by references, in a stream of bytes and in single texts.

    A value is found as it is, as a string of JSON, as Python's `repr`, and with colour codes between its characters.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        """`values` are variables: name → value."""
        spelt = {
            spelling.encode(errors="surrogateescape"): f"${{{name}}}".encode()
            for name, value in values.items()
            if _is_hidden(value)
            for spelling in (value, json.dumps(value)[1:-1], repr(value)[1:-1], ascii(value)[1:-1])
        }
        self._spelt = dict(sorted(spelt.items(), key=lambda one: len(one[0]), reverse=True))
        self._pattern = re.compile(b"|".join(map(_coloured, self._spelt))) if spelt else None
        self._rest = b""

    def feed(self, chunk: bytes) -> bytes:
        """Return the next part of the stream. A possible beginning of a value waits for the next chunk."""
        if self._pattern is None:
            return chunk
        chunk = self._rest + chunk
        end = max((found.end() for found in self._pattern.finditer(chunk)), default=0)
        whole = len(chunk) - self._begun(chunk[end:])
        self._rest = chunk[whole:]
        return self._replaced(chunk[:whole])

    def close(self) -> bytes:
        """Return the last part of the stream."""
        rest, self._rest = self._rest, b""
        return rest

    def text(self, text: str) -> str:
        """Return a text with references in place of values; the stream stays as it is."""
        return self._replaced(text.encode(errors="surrogatepass")).decode(errors="surrogatepass")

    def _replaced(self, whole: bytes) -> bytes:
        return self._pattern.sub(self._reference, whole) if self._pattern else whole

    def _reference(self, found: re.Match[bytes]) -> bytes:
        """Return the reference, and the colour codes that stood inside the value, so that no colour runs on."""
        codes = b"".join(_COLOURED.findall(found[0]))
        return self._spelt[_COLOURED.sub(b"", found[0])] + codes

    def _begun(self, rest: bytes) -> int:
        """Return how many bytes at the end are the beginning of a value, colour codes among them.

        What looks like a code may begin a value with one of its own letters.
        """
        rest = rest[-MOST_WAITING:]
        longest, at, begun = max(map(len, self._spelt)), len(rest), 0
        plain = b""
        for code in (*reversed(list(_CODE_OR_BEGUN.finditer(rest))), None):
            begin, end = code.span() if code else (0, 0)
            while at > end and len(plain) < longest:
                at -= 1
                plain = rest[at : at + 1] + plain
                begun = len(rest) - at if self._is_beginning(plain) else begun
            if len(plain) >= longest:
                break
            inside = (place for place in range(begin + 1, end) if self._is_beginning(rest[place:end] + plain))
            begun = max(begun, len(rest) - next(inside, len(rest)))
            at = begin
        return begun

    def _is_beginning(self, plain: bytes) -> bool:
        return any(value.startswith(plain) and value != plain for value in self._spelt)


def _coloured(value: bytes) -> bytes:
    """Return the pattern of a value that may have colour codes between its bytes."""
    return (rb"(?:" + _CODE + rb")*").join(re.escape(value[at : at + 1]) for at in range(len(value)))


def _is_hidden(value: str) -> bool:
    return len(value) >= (LEAST_OF_A_KIND if _OF_A_KIND.fullmatch(value) else LEAST_CHARACTERS)


NO_MASK = Mask({})


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


class Tail:
    """Reads the whole lines that are appended to a file.

    It starts over where the file is replaced or truncated, and where its first line is written anew.
    """

    def __init__(self, path: Path, most_bytes: int) -> None:
        """`most_bytes` is the most that is read at once; a line that does not fit is skipped."""
        self._path = path
        self._most_bytes = most_bytes
        self._inode = 0
        self._offset = 0
        self._first_line = b""
        self.starts = 0
        """How often it has started at the beginning of the file."""
        self.left = 0
        """The bytes that the last call has left unread, beside the beginning of a line."""
        self.unended = 0
        """The bytes at the end of the file that are no whole line."""

    def read(self) -> list[str]:
        """Return the lines since the last call; none while there is no file.

        Raises OSError, also where the path is a folder, a pipe or anything else that is no regular file.
        """
        try:
            with open(self._path, "rb", opener=open_at_once) as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise OSError(errno.EINVAL, "it is no regular file", str(self._path))
                begins_alike = file.read(len(self._first_line)) == self._first_line
                if status.st_ino != self._inode or status.st_size < self._offset or not begins_alike:
                    self._inode, self._offset, self._first_line = status.st_ino, 0, b""
                    self.starts += 1
                file.seek(self._offset)
                chunk = file.read(self._most_bytes)
        except FileNotFoundError:
            return []
        whole, newline, _ = chunk.rpartition(b"\n")
        if self._offset == 0 and newline:
            self._first_line = whole.partition(b"\n")[0] + newline
        self.unended = len(chunk) - len(whole) - len(newline)
        self.left = status.st_size - self._offset - len(chunk) if len(chunk) == self._most_bytes else 0
        if self._offset == 0:
            whole = whole.removeprefix(codecs.BOM_UTF8)
        self._offset += len(chunk) if len(chunk) == self._most_bytes and not newline else len(whole) + len(newline)
        # bytes are split, not text: `str.splitlines` would also split at characters such as U+2028
        return [line.decode(errors="replace") for line in whole.splitlines()]


def open_at_once(path: str, flags: int) -> int:
    """Open a file. Without O_NONBLOCK, opening a pipe would wait for its writer."""
    return os.open(path, flags | os.O_NONBLOCK)


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
        self._chunks: queue.Queue[list[OutputLine]] = queue.Queue(bounds.waiting_chunks)
        self._log = Log(log, bounds.log_bytes)
        self._bounds = bounds
        self._mask = mask
        self._thread = threading.Thread(target=self._read, name="console", daemon=True)
        self._thread.start()

    def lines(self, timeout_s: float) -> list[OutputLine]:
        """Return the lines read since the last call; wait up to `timeout_s` seconds for the first line.

        Lines that were read at once are returned at once. Raises OutputError when the log cannot be written.
        """
        lines: list[OutputLine] = []
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
        chunk = [OutputLine(t_s=now_s, text=text) for text in texts]
        while chunk:
            with suppress(queue.Full):
                self._chunks.put(chunk, timeout=FULL_S)
                return
