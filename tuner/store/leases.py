"""Says which process runs a trial, and whether that process still lives."""

import os
import platform
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import psutil
from pydantic import TypeAdapter, ValidationError

BEAT_S = 30.0
"""The seconds between two signs of life."""
STALE_S = 600.0
"""A process on another host counts as gone after this many seconds without a sign of life."""
_START_TOLERANCE_S = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Lease:
    """The process that runs a trial; `started` and `beat` are Unix times in seconds."""

    host: str
    """The name that `this_host` returns. A lease of an older version has only its first word."""
    pid: int
    started: float
    beat: float

    @classmethod
    def mine(cls) -> "Lease":
        """Return a lease of this process with a sign of life now."""
        pid = os.getpid()
        return cls(host=this_host(), pid=pid, started=psutil.Process(pid).create_time(), beat=time.time())

    @classmethod
    def read(cls, attribute: object) -> "Lease | None":
        """Return the lease in a trial's attribute; None where the attribute is missing or has another form."""
        names = {one.name for one in fields(cls)}
        try:
            return (
                _LEASE.validate_python(attribute) if isinstance(attribute, dict) and attribute.keys() == names else None
            )
        except ValidationError:
            return None

    def write(self) -> dict[str, Any]:
        """Return the lease as values of JSON."""
        return asdict(self)

    def same(self, other: "Lease") -> bool:
        """Check whether both leases are of the same process."""
        is_near = abs(self.started - other.started) < _START_TOLERANCE_S
        return is_near and (self.host, self.pid) == (other.host, other.pid)

    def held(self) -> bool:
        """Check whether the process lives: on this host by pid and start time, elsewhere by its last sign of life.

        Another container counts as elsewhere, because it may have the host's name but its own process ids. A zombie
        does not live.
        """
        if self.host not in {this_host(), platform.node()}:
            return time.time() - self.beat < STALE_S
        try:
            process = psutil.Process(self.pid)
            is_same = abs(process.create_time() - self.started) < _START_TOLERANCE_S
            return is_same and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False


_LEASE = TypeAdapter(Lease)


def this_host() -> str:
    """Return the name of this host, and the namespace of its process ids where known (pid_namespaces(7))."""
    try:
        return f"{platform.node()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return platform.node()
