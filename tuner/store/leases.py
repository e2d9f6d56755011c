"""Says which process runs a trial, and whether that process still lives, by the clock of the database.

A process that begins a trial writes a lease into it, and renews the lease again and again: a sign of life. Others may
end the trial once its process is gone. Signs of life are compared on the database's clock, because the clocks of two
hosts may differ.
"""

import os
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, Any

import sqlalchemy as sql
from pydantic import Field

from tuner.records.schema import record_of

BEAT_S = 30.0
"""The seconds between two signs of life."""
STALE_S = 600.0
"""A process on another host counts as gone after this many seconds without a sign of life."""
WATCHED_S = 3 * BEAT_S
"""Before a process says that another one is gone, it waits this many seconds for a sign: a clock may be wrong."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lease:
    """The process that runs a trial. Boot and start ticks identify it whatever the wall clock does meanwhile."""

    host: str
    """The name that `this_host` returns."""
    pid: Annotated[int, Field(ge=1, lt=1 << 31)]
    beat: float
    """The newest sign of life: seconds since 1970 on the clock of the database."""
    boot: str | None = None
    """The boot of the host: `boot_id` of random(4)."""
    ticks: int | None = None
    """The start of the process, in clock ticks after the boot: `starttime` of proc(5)."""

    @classmethod
    def mine(cls, now_s: float | None = None) -> "Lease":
        """Return a lease of this process with a sign of life at `now_s`, on the database's clock.

        None takes this host's clock, for a lease whose sign of life nobody compares.
        """
        pid, beat = os.getpid(), time.time() if now_s is None else now_s
        return cls(host=this_host(), pid=pid, beat=beat, boot=_boot_id(), ticks=_start_ticks(pid))

    @classmethod
    def read(cls, attribute: object) -> "Lease | None":
        """Return the lease in a trial's attribute; None where the attribute is missing or has another form."""
        return record_of(cls, attribute)

    def write(self) -> dict[str, Any]:
        """Return the lease as values of JSON."""
        return {name: fact for name, fact in asdict(self).items() if fact is not None}

    def is_of_same_process(self, lease: "Lease") -> bool:
        """Return whether both leases are of the same process."""
        return (self.host, self.pid, self.boot, self.ticks) == (lease.host, lease.pid, lease.boot, lease.ticks)

    def is_here(self) -> bool:
        """Return whether the process ran on this machine, even if in another container: all share the boot."""
        return self.boot == _boot_id() if self.boot else self.host == this_host()

    def is_alive(self, lives: "Callable[[Lease], bool]") -> bool:
        """Return whether the process lives: on this host the kernel says it, elsewhere `lives` by the signs of life.

        Another container counts as elsewhere, because it may have the host's name but its own process ids. So does a
        process whose start is unknown. A zombie does not live.
        """
        if self.host != this_host() or self.boot is None or self.ticks is None:
            return lives(self)
        return _boot_id() == self.boot and _start_ticks(self.pid) == self.ticks


class Liveness:
    """Watches the signs of life of processes on other hosts; says of a lease whether its process lives.

    A process is gone in two cases:

    1. Its last sign of life is old on the database's clock, and none has come while this process has watched.
    2. None has come for `STALE_S` by this process's own clock: the time of the last sign may lie in the future.
    """

    def __init__(self, now_s: Callable[[], float], elapsed_s: Callable[[], float] = time.monotonic) -> None:
        """`now_s` is the database's clock; `elapsed_s` is that of this process, which nobody sets."""
        self._now_s, self._elapsed_s = now_s, elapsed_s
        self._seen_s: dict[Lease, float] = {}
        """Lease with its sign of life → when this process saw it first, by its own clock."""

    def __call__(self, lease: Lease) -> bool:
        """Return whether the process of a lease lives, as far as its signs of life tell: see the class."""
        if len(self._seen_s) > 10_000:  # each sign of life makes another lease
            self._seen_s.clear()  # the watch begins anew
        at_s = self._elapsed_s()
        silent_s = at_s - self._seen_s.setdefault(lease, at_s)
        return silent_s < WATCHED_S or (silent_s < STALE_S and self._now_s() - lease.beat < STALE_S)


def database_s(url: sql.URL, scalar: Callable[[Any], Any]) -> float:
    """Return the seconds since 1970 on the clock of a database: a server's, or that of the disk that holds the file.

    It is this host's time where no file can be made.

    `scalar` returns the answer to a query of one value.
    """
    if url.get_backend_name() == "postgresql":
        return float(scalar(sql.select(sql.extract("epoch", sql.func.clock_timestamp()))))
    with suppress(OSError), TemporaryFile(dir=Path(url.database or "").parent) as file:
        return os.fstat(file.fileno()).st_mtime  # on a shared disk, the disk's server has set this time
    return time.time()


def lives_at(now_s: float) -> Callable[[Lease], bool]:
    """Return a function that says of a lease whether its process has given a sign of life lately.

    Unlike `Liveness`, it does not watch: it judges at once. `now_s` is the time on the database's clock.
    """
    return lambda lease: now_s - lease.beat < STALE_S


def is_held(attribute: object, lives: Callable[[Lease], bool]) -> bool:
    """Return whether a living process runs a trial, by the trial's attribute `LEASE`; False for one of another form.

    `lives`: returns whether the process of a lease lives, for one on another host.
    """
    lease = Lease.read(attribute)
    return lease is not None and lease.is_alive(lives)


def this_host() -> str:
    """Return the name of this host, and where known the namespace of its process ids, which tells containers apart."""
    try:
        return f"{platform.node()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return platform.node()


def _boot_id() -> str | None:
    """Return the id of this boot; None where the kernel does not tell it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None


def _start_ticks(pid: int) -> int | None:
    """Return when a process started, in clock ticks after the boot; None where none of this id lives, or a zombie."""
    try:
        facts = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()  # a name may hold spaces
        return None if facts[0] == b"Z" else int(facts[19])
    except (OSError, IndexError, ValueError):
        return None
