"""Counts the CPU time and the memory of a trainer's processes, also of children that live for a moment only."""

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import psutil

from tuner.devices.cgroups import usable_cores
from tuner.units import mib


@dataclass(frozen=True, kw_only=True, slots=True)
class CpuTime:
    """The CPU time that one process has used so far, in seconds."""

    own_s: float
    """The user and system time of the process itself."""
    reaped_s: float = 0.0
    """The time of its children that have ended and that it has waited for (getrusage(2), RUSAGE_CHILDREN)."""

    @property
    def total_s(self) -> float:
        """Both together."""
        return self.own_s + self.reaped_s


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessUsage:
    """How much CPU time one process of the trainer's tree has used at one moment."""

    pid: int
    parent: int
    created_s: float
    cpu_s: float
    """The time that the process and its ended children have used so far."""


Times = Mapping[int, CpuTime]
"""The CPU time of each process, by pid."""
_NOTHING = CpuTime(own_s=0.0)


def find_ranks(tree: Sequence[ProcessUsage], count: int) -> list[int]:
    """Return the pids of the `count` processes that used the most CPU time, the oldest process first."""
    busiest = heapq.nlargest(count, tree, key=lambda process: process.cpu_s)
    return [process.pid for process in sorted(busiest, key=lambda process: (process.created_s, process.pid))]


def find_owners(tree: Sequence[ProcessUsage], ranks: Sequence[int]) -> dict[int, int]:
    """Return the pid of the rank that each process works for, by pid.

    A rank works for itself. A process below a rank works for the nearest rank above. Other processes are left out.
    """
    parents = {process.pid: process.parent for process in tree}
    owners: dict[int, int] = {}
    for process in tree:
        owner = process.pid
        while owner not in ranks and owner in parents:
            owner = parents[owner]
        if owner in ranks:
            owners[process.pid] = owner
    return owners


def spent_s(before: Times, after: Times) -> float:
    """Return the CPU time that some processes used between two measurements, with their ended children.

    A process that is new has used all its time since. A process that has ended is in the ended children of its parent
    from then on; what was counted of it before is not counted again.
    """
    own_s = sum(max(0.0, one.own_s - before.get(pid, _NOTHING).own_s) for pid, one in after.items())
    reaped_s = sum(one.reaped_s - before.get(pid, _NOTHING).reaped_s for pid, one in after.items())
    gone_s = sum(one.total_s for pid, one in before.items() if pid not in after)
    return own_s + max(0.0, reaped_s - gone_s)


class ProcessTree:
    """A root process and all processes below it, as of the last search, and which of them are ranks."""

    def __init__(self, root: psutil.Process | None, count: int) -> None:
        self._processes: dict[int, psutil.Process] = {}
        self._root = root
        self._count = count
        self._helpers_mib: dict[int, float] = {}
        self.ranks: list[int] = []
        self.owners: dict[int, int] = {}

    def rescan(self) -> None:
        """Search the tree again. When the root has ended, keep the processes of the last search."""
        if self._root is None:
            return
        with suppress(psutil.Error):
            tree = (self._root, *self._root.children(recursive=True))
            self._processes = {process.pid: process for process in tree}
        usages = [usage for process in self._processes.values() if (usage := _usage(process))]
        self.ranks = find_ranks(usages, self._count)
        self.owners = find_owners(usages, self.ranks)
        self._helpers_mib = {rank: self._measure_helpers_mib(rank) for rank in self.ranks}

    def times(self) -> dict[int, CpuTime]:
        """Return the CPU time of each process."""
        found: dict[int, CpuTime] = {}
        for pid, process in self._processes.items():
            with suppress(psutil.Error):
                found[pid] = _cpu_time(process)
        return found

    def memory_mib(self, rank: int) -> float | None:
        """Return the resident memory of a rank and its helper processes; None when the rank has ended.

        Memory that helpers share with other processes counts in parts (proc(5), Pss), as of the last search.
        """
        with suppress(psutil.Error):
            own_mib = mib(self._processes[rank].memory_info().rss)
            return own_mib + self._helpers_mib.get(rank, 0.0) or None
        return None

    def _measure_helpers_mib(self, rank: int) -> float:
        total = 0.0
        for pid, owner in self.owners.items():
            if owner == rank != pid:
                with suppress(psutil.Error):
                    total += mib(self._processes[pid].memory_full_info().pss)
        return total


class Others:
    """Measures how busy processes keep this machine that are neither the trainer's nor the tuner's own."""

    def __init__(self, cores: int | None = None, busy_s: Callable[[], float] | None = None) -> None:
        """`cores`: the processors of the machine; None asks the system. `busy_s` replaces `machine_busy_s`.

        Nothing is known where this process may use only some of the machine's processors.
        """
        self._busy_s = busy_s or machine_busy_s
        self._cores = cores or psutil.cpu_count() or 1
        self._knows = cores is not None or usable_cores() >= self._cores
        self._before: tuple[float, float, float] = math.inf, 0.0, 0.0

    def share_pct(self, t_s: float, trainer_s: float) -> float | None:
        """Return the percentage of all processors since the last call; None where it is unknown.

        `trainer_s` is the CPU time that the trainer has used since then. A short interval may give less than 0.
        """
        before_s, busy_before_s, own_before_s = self._before
        busy_s, own_s = self._busy_s(), _cpu_time(psutil.Process()).own_s
        self._before = t_s, busy_s, own_s
        if not self._knows or t_s <= before_s:
            return None
        others_s = busy_s - busy_before_s - (own_s - own_before_s) - trainer_s
        return 100.0 * others_s / (self._cores * (t_s - before_s))


def machine_busy_s() -> float:
    """Return the CPU time that all processes of the machine have used since its start (proc(5), /proc/stat)."""
    times = psutil.cpu_times()
    return times.user + times.nice + times.system + times.irq + times.softirq


def _usage(process: psutil.Process) -> ProcessUsage | None:
    with suppress(psutil.Error), process.oneshot():
        return ProcessUsage(
            pid=process.pid,
            parent=process.ppid(),
            created_s=process.create_time(),
            cpu_s=_cpu_time(process).total_s,
        )
    return None


def _cpu_time(process: psutil.Process) -> CpuTime:
    times = process.cpu_times()
    return CpuTime(own_s=times.user + times.system, reaped_s=times.children_user + times.children_system)
