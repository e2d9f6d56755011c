"""A trainer's output: the folder of a probe's files, the lines of its console, their log, and a file that grows.

The values of environment variables are hidden there: a reference `${NAME}` stands in their place. Text in the form of a
key is hidden, too, behind `***`.
"""

import codecs
import json
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import IO, Any, NamedTuple

from tuner.errors import OutputError
from tuner.probe.probe_plan import Clock, OutputLine
from tuner.probe.quantities import BYTES_PER_MIB
from tuner.study import open_anew, open_regular, without_keys

_REMEDY = "check what stands in its way, and the free space, or choose another folder for the runs; then start again"


@contextmanager
def reserved_out_dir(wanted: Path) -> Iterator[Path]:
    """Yield a new folder that only its owner can read; it is removed at the end if it is still empty.

    The folder is `wanted`. If it exists, the folder is `wanted-2`, `wanted-3` and so on. A database uses each trial
    number once, so an existing folder belongs to another database. The folder is made in one step, so two tuners never
    get the same folder, even on two machines that share the disk. Raises OutputError when the folder cannot be made.
    """
    folder = wanted
    try:
        wanted.parent.mkdir(parents=True, exist_ok=True)  # outside the loop: a broken link raises FileExistsError, too
        for number in count(2):
            with suppress(FileExistsError):
                folder.mkdir(mode=0o700)  # what a trainer writes there may quote a key
                break
            folder = wanted.with_name(f"{wanted.name}-{number}")
    except OSError as error:
        raise OutputError(f"{error.filename} cannot be made: {error.strerror}; {_REMEDY}") from error
    try:
        yield folder
    finally:
        with suppress(OSError):
            folder.rmdir()


def folder_of(study: Path, out_dir: str | None) -> Path | None:
    """Return a probe's folder as the database names it; None if it names none, or a folder outside the study's.

    Others may have written the database, so a path that leads out of the study's folder is not followed.
    """
    if not out_dir or "\0" in out_dir:
        return None
    folder = (study / out_dir).resolve()
    return folder if folder.is_relative_to(study.resolve()) else None


def make_private(file: Path) -> None:
    """Make an empty file that only its owner may read, unless the file exists. Raises OSError."""
    os.close(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600))


def unwritable(file: str | Path, error: OSError) -> OutputError:
    """Return the error that says that a file of a probe cannot be written, and what to do."""
    return OutputError(f"{file} cannot be written: {error.strerror}; {_REMEDY}")


class Mask:
    """Hides the values of variables in a text, such as keys: the reference `${NAME}` takes the place of each.

    A value is found as it is, line by line, as a string of JSON, and as `repr`. Other text in the form of a key is
    hidden, too.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        """Hide some values in texts, such as keys. `values`: variable → its value, which becomes a reference to it."""
        self._references: dict[str, str] = {}
        """The spelling of a value → the reference that stands in its place."""
        for name, value in values.items():
            for line in filter(_is_long_enough, (value, *value.splitlines())):
                for spelling in (line, json.dumps(line)[1:-1], repr(line)[1:-1], ascii(line)[1:-1]):
                    # the spelling as `LineSplitter` decodes the bytes of a trainer
                    as_printed = printable(spelling.encode(errors="surrogateescape").decode(errors="replace"))
                    self._references[as_printed] = f"${{{name}}}"
        longest_first = sorted(self._references, key=len, reverse=True)  # a value may contain another one
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def text(self, text: str) -> str:
        """Return a text with a reference in place of each value, and `***` in place of other keys."""
        if self._pattern:
            text = self._pattern.sub(lambda match: self._references[match[0]], text)
        return without_keys(text)


def _is_long_enough(value: str) -> bool:
    """Return whether a value is so long that other texts do not contain it by chance, and may be hidden in them.

    It needs 8 characters, as in GitLab CI. Words of letters alone, numbers and times need 16, because lines of progress
    contain such words.
    """
    is_word_or_number = re.fullmatch(r"[^\W\d_]+|[-+.,:/\deE]+", value) is not None
    return len(value) >= (16 if is_word_or_number else 8)


NO_MASK = Mask({})
"""Hides only what has the form of a key."""


def json_object(text: str) -> dict[str, Any]:
    """Return the JSON object that a line of a trainer's messages holds; an empty dictionary if it holds none."""
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


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

    Bytes that are not UTF-8 become U+FFFD. Control sequences are removed, and then the values of `mask` are hidden.
    """

    def __init__(self, mask: Mask = NO_MASK) -> None:
        self._mask = mask
        self._part_of_line = b""

    def feed(self, chunk: bytes) -> list[str]:
        """Return the lines that `chunk` completes, without empty lines."""
        lines = (self._part_of_line + chunk).splitlines()
        is_last_complete = chunk.endswith((b"\n", b"\r"))
        self._part_of_line = b"" if is_last_complete or not lines else self._shortened(lines.pop())
        return [text for line in lines if (text := self._text(line))]

    def close(self) -> list[str]:
        """Return the unfinished last line in a list, or an empty list."""
        text, self._part_of_line = self._text(self._part_of_line), b""
        return [text] if text else []

    def _shortened(self, line: bytes) -> bytes:
        """Return a line, without its middle if it is longer than `MAX_LINE_BYTES`.

        Values in a long line are hidden before the cut, because a half of a value would not be found later.
        """
        if len(line) <= MAX_LINE_BYTES:
            return line
        line = self._mask.text(printable(line.decode(errors="surrogateescape"))).encode(errors="surrogateescape")
        return line if len(line) <= MAX_LINE_BYTES else line[: MAX_LINE_BYTES // 2] + line[-MAX_LINE_BYTES // 2 :]

    def _text(self, line: bytes) -> str:
        """Return a line as a text without control sequences and hidden values."""
        return self._mask.text(printable(self._shortened(line).decode(errors="replace")))


def printable(text: str) -> str:
    """Return a text without control sequences of a terminal: colours, cursor moves, bells and NUL. Tabs stay."""
    return text if text.isprintable() else _CONTROL.sub("", text)


class Tail:
    """Reads the lines that a program appends to a file, as soon as they are complete.

    It reads the file from its beginning again if it was replaced or truncated, or if its first line has changed.
    """

    def __init__(self, path: Path, most_bytes: int) -> None:
        """Begin before the start of a file. At most `most_bytes` are read at once: of a longer line, only the end."""
        self._path = path
        self._most_bytes = most_bytes
        self._inode = 0
        self._offset = 0
        self._first_line = b""

    def read(self) -> list[str]:
        """Return the lines since the last call; empty while there is no file.

        Raises OSError, also if the path is a folder, a pipe or anything else that is no regular file.
        """
        try:
            with open_regular(self._path) as file:
                status = os.fstat(file.fileno())
                has_same_beginning = file.read(len(self._first_line)) == self._first_line
                is_replaced = status.st_ino != self._inode or not has_same_beginning
                if is_replaced or status.st_size < self._offset:
                    self._inode, self._offset, self._first_line = status.st_ino, 0, b""
                file.seek(self._offset)
                chunk = file.read(self._most_bytes)
        except FileNotFoundError:
            return []
        lines, newline, _ = chunk.rpartition(b"\n")  # what follows is an incomplete line, which is read again
        is_full = len(chunk) == self._most_bytes
        is_part_of_long_line = is_full and not newline  # dropped; its end comes later, as a line of its own
        begins_file = self._offset == 0
        self._offset += len(chunk) if is_part_of_long_line else len(lines) + len(newline)
        if begins_file and newline:
            self._first_line = lines.partition(b"\n")[0] + newline
        if begins_file:
            lines = lines.removeprefix(codecs.BOM_UTF8)  # some programs begin a file with it; it is no text
        # bytes are split, not text: `str.splitlines` would also split at characters such as U+2028
        return [line.decode(errors="replace") for line in lines.splitlines()]


class Bounds(NamedTuple):
    """How long the end of a started process may take, and how much of its output is kept."""

    term_grace_s: float = 3.0
    """Seconds between TERM and KILL."""
    kill_s: float = 10.0
    """Seconds that a process has to end after KILL. A process that lives longer hangs inside the kernel; the tuner then
    goes on without it and names it."""
    close_s: float = 10.0
    """Seconds that the console's pipe has to close; after that, something that outlived a killed guard holds it."""
    waiting_bytes: int = 16 * BYTES_PER_MIB
    """Output that may wait to be read; beyond that the trainer waits, so that a flood cannot fill memory.

    A trainer may lock the database for which the reader waits: it must not wait for the reader then.
    """
    log_bytes: int = 64 * BYTES_PER_MIB
    """The most that the log file takes."""
    tail_bytes: int = BYTES_PER_MIB
    """The most that is read from the progress file at once. Of a longer record only the end is read: no JSON."""


USUAL_BOUNDS = Bounds()
"""The bounds of every probe; tests take shorter ones."""


class Log:
    """A file of at most `most_bytes` bytes that only its owner can read. It remembers the first error in writing it."""

    def __init__(self, path: Path, most_bytes: int = USUAL_BOUNDS.log_bytes) -> None:
        """Open the file of a probe's output. Raises OutputError when it cannot be opened."""
        self._path, self._bytes_left = path, most_bytes
        try:
            self._file = open_anew(path)
        except OSError as error:
            raise unwritable(path, error) from error
        self._error: OSError | None = None
        """The first error."""

    def write(self, lines: Iterable[str]) -> None:
        """Append lines and flush them. Lines after an error, beyond the bound or after `close` are left out."""
        chunk = "".join(f"{line}\n" for line in lines).encode()
        if self._error is not None or self._bytes_left <= 0:
            return
        kept = chunk[: self._bytes_left]
        self._bytes_left -= len(chunk)
        if self._bytes_left <= 0:
            kept += b"\n[tuner: the rest of this log is left out]\n"
        try:
            self._file.write(kept)
            self._file.flush()
        except OSError as error:
            self._error = error

    def check(self) -> None:
        """Raise OutputError when a chunk could not be written."""
        if self._error is not None:
            raise OutputError(f"{self._path} cannot be written: {self._error.strerror}; free some space and resume")

    def close(self) -> None:
        """Close the file. Harmless to repeat."""
        self._bytes_left = 0
        with suppress(OSError):
            self._file.close()


class _LineQueue:
    """A queue of lines from one thread to another. While it holds more than `most_bytes`, `add` waits."""

    def __init__(self, most_bytes: float) -> None:
        self._most_bytes = most_bytes
        self._lines: list[OutputLine] = []
        self._bytes = 0
        self._changed = threading.Condition()

    def add(self, lines: list[OutputLine]) -> None:
        """Add lines as soon as there is room. An empty queue has room for any lines."""
        size = sum(200 + len(line.text) for line in lines)  # a line takes 200 bytes beside its text
        with self._changed:
            self._changed.wait_for(lambda: not self._lines or self._bytes + size <= self._most_bytes)
            self._lines += lines
            self._bytes += size
            self._changed.notify_all()

    def take(self, timeout_s: float) -> list[OutputLine]:
        """Take all lines out of the queue, and return them; wait up to `timeout_s` seconds for the first one."""
        with self._changed:
            self._changed.wait_for(lambda: self._lines, timeout_s)
            lines, self._lines, self._bytes = self._lines, [], 0
            self._changed.notify_all()
        return lines

    def remove_limit(self) -> None:
        """Let `add` wait no longer, however many lines are in the queue."""
        with self._changed:
            self._most_bytes = float("inf")
            self._changed.notify_all()


class Console:
    """Reads a pipe in a thread of its own until the pipe ends, and then closes it."""

    def __init__(self, pipe: IO[bytes], log: Log, clock: Clock, origin_s: float, *, bounds: Bounds, mask: Mask) -> None:
        """Read the output of a command from its pipe.

        Args:
            pipe: The pipe, unbuffered; it is closed at its end.
            log: Keeps the lines; it is closed at the end of the pipe.
            clock: Says when each line was read.
            origin_s: The time on this clock at which the probe's time is 0.
            bounds: How much may wait, and how long the end may take.
            mask: Hides values in the lines and in the log.
        """
        self._clock, self._origin_s = clock, origin_s
        self._queue = _LineQueue(bounds.waiting_bytes)
        self._log = log
        self._close_s = bounds.close_s
        self._thread = threading.Thread(target=self._read, args=(pipe, mask), name="console", daemon=True)
        self._thread.start()

    def lines(self, timeout_s: float) -> list[OutputLine]:
        """Return the lines read since the last call; wait up to `timeout_s` seconds for the first line.

        Lines that were read together are returned together. Raises OutputError when the log cannot be written.
        """
        lines = self._queue.take(timeout_s)
        self._log.check()
        return lines

    def close(self) -> None:
        """Wait for the end of the pipe, at most `Bounds.close_s` seconds; call this once every writer is gone."""
        self._queue.remove_limit()  # no more than a pipe's content is left, and the last lines name the failure
        self._thread.join(self._close_s)

    def _read(self, pipe: IO[bytes], mask: Mask) -> None:
        """Read the pipe to its end, and close it."""
        splitter = LineSplitter(mask)
        while chunk := pipe.read(1 << 16):  # the usual size of a pipe (pipe(7))
            self._hand_on(splitter.feed(chunk))
        self._hand_on(splitter.close())
        self._log.close()
        pipe.close()

    def _hand_on(self, texts: list[str]) -> None:
        """Write lines to the log, and put them into the queue, where `lines` finds them."""
        self._log.write(texts)
        now_s = self._clock.now() - self._origin_s
        self._queue.add([OutputLine(t_s=now_s, text=text) for text in texts])
