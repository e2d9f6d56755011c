"""Who runs a trial, and whether that process is still there."""

import os
import platform
import time
from dataclasses import asdict, dataclass
from typing import Any

import psutil

BEAT_S = 30.0
"""Between two signs of life."""
STALE_S = 600.0
"""A lease from another host counts as dropped after this long without a sign of life."""
_START_TOLERANCE_S = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Lease:
    """The process that runs a trial; `started` and `beat` are Unix times in seconds."""

    host: str
    pid: int
    started: float
    beat: float

    @classmethod
    def mine(cls) -> "Lease":
        """Give a lease of this process, beating now."""
        pid = os.getpid()
        return cls(host=platform.node(), pid=pid, started=psutil.Process(pid).create_time(), beat=time.time())

    @classmethod
    def read(cls, attribute: object) -> "Lease | None":
        """Read a lease back from a trial's attribute; None where that is missing or of another form."""
        try:
            return cls(**attribute) if isinstance(attribute, dict) else None
        except TypeError:
            return None

    def write(self) -> dict[str, Any]:
        """Give the lease as JSON values."""
        return asdict(self)

    def held(self) -> bool:
        """Tell whether the process lives: on this host by pid and start time, elsewhere by its last sign of life.

        A process that has ended but that its parent never waited for does not live.
        """
        if self.host != platform.node():
            return time.time() - self.beat < STALE_S
        try:
            process = psutil.Process(self.pid)
            is_same = abs(process.create_time() - self.started) < _START_TOLERANCE_S
            return is_same and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False
