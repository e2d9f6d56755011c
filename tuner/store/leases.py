"""Who runs a trial, and whether that process is still there."""

import os
import platform
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import psutil
from pydantic import TypeAdapter, ValidationError

BEAT_S = 30.0
"""Between two signs of life."""
STALE_S = 600.0
"""A lease from another host counts as dropped after this long without a sign of life."""
_START_TOLERANCE_S = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Lease:
    """The process that runs a trial; `started` and `beat` are Unix times in seconds."""

    host: str
    """As `this_host` gives it; without its second word where an older version wrote the lease."""
    pid: int
    started: float
    beat: float

    @classmethod
    def mine(cls) -> "Lease":
        """Give a lease of this process, beating now."""
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
        """Give the lease as JSON values."""
        return asdict(self)

    def same(self, other: "Lease") -> bool:
        """Tell whether both are of one process."""
        is_near = abs(self.started - other.started) < _START_TOLERANCE_S
        return is_near and (self.host, self.pid) == (other.host, other.pid)

    def held(self) -> bool:
        """Tell whether the process lives: on this host by pid and start time, elsewhere by its last sign of life.

        Containers may share a host's name and not its pids: another one counts as elsewhere.

        A process that has ended but that its parent never waited for does not live.
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
    """Name this host and, where the system tells it, the namespace in which its pids count (pid_namespaces(7))."""
    try:
        return f"{platform.node()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return platform.node()
