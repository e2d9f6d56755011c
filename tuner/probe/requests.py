"""The named pipe through which the tuner asks a session."""

import json
import os
from io import FileIO
from pathlib import Path
from typing import Any

from tuner.errors import OutputError

_REMEDY = "keep runs on a file system of this machine, or set probe.warm: false"


class Requests:
    """JSON lines into a named pipe; what it cannot take yet waits here, so that nobody waits for a trainer to read."""

    def __init__(self, path: Path) -> None:
        """Make the pipe at `path`. Raises OutputError when that cannot be."""
        self.path = path
        self._waiting = b""
        try:
            os.mkfifo(path)
            self._pipe = FileIO(path, "r+", opener=_at_once)  # for reading as well: so it opens without a reader
        except OSError as error:
            raise OutputError(f"{path} cannot be made a named pipe: {error.strerror}; {_REMEDY}") from error

    def send(self, what: str, **fields: Any) -> None:
        """Add a message of this type."""
        self._waiting += json.dumps({"type": what, **fields}).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        """Hand on what waits, as far as there is room."""
        while self._waiting and (written := self._pipe.write(self._waiting)):
            self._waiting = self._waiting[written:]

    def close(self) -> None:
        """Remove the pipe; whoever reads it learns that nothing more comes. Harmless to repeat."""
        self._waiting = b""
        self._pipe.close()
        self.path.unlink(missing_ok=True)


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
