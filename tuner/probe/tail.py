"""Reads what is appended to a text file, line by line and a bounded number of bytes at a time."""

import codecs
import errno
import os
import stat
from pathlib import Path


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
            with open(self._path, "rb", opener=_open) as file:
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


def _open(path: str, flags: int) -> int:
    """Open a file. Without O_NONBLOCK, opening a pipe would wait for its writer."""
    return os.open(path, flags | os.O_NONBLOCK)
