"""The named pipe through which the tuner sends requests to a session."""

import json
import os
from io import FileIO
from pathlib import Path
from typing import Any

from tuner.errors import OutputError

_REMEDY = "keep runs on a file system of this machine, or set probe.warm: false"


class Requests:
    """Writes JSON lines into a named pipe. Data that does not fit yet waits in a buffer, so that no write blocks."""

    def __init__(self, path: Path) -> None:
        """Create the pipe at `path`. Raises OutputError when it cannot be created."""
        self.path = path
        self._waiting = b""
        try:
            os.mkfifo(path)
            self._pipe = FileIO(path, "r+", opener=_non_blocking)  # "r+": opening for writing only needs a reader
        except OSError as error:
            raise OutputError(f"cannot create the named pipe {path}: {error.strerror}; {_REMEDY}") from error

    def send(self, what: str, **fields: Any) -> None:
        """Send a message with `what` as its type."""
        self._waiting += json.dumps({"type": what, **fields}).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        """Write as much of the buffer as the pipe has room for."""
        while self._waiting and (written := self._pipe.write(self._waiting)):
            self._waiting = self._waiting[written:]

    def close(self) -> None:
        """Close and remove the pipe, which its reader sees as the end of the file. A second call does nothing."""
        self._waiting = b""
        self._pipe.close()
        self.path.unlink(missing_ok=True)


def _non_blocking(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
