"""Measures the CPU share of each rank, for machines without a GPU."""

import heapq
import math
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tuner.devices.cgroups import usable_cores, usable_memory
from tuner.probe.plan import Device
from tuner.probe.result import DeviceSample
from tuner.units import mib

_RESCAN_S = 1.0
"""The seconds between two searches for the processes that are ranks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessUsage:
    """How much CPU time one process of the trainer's tree has used at one moment."""

    pid: int
    parent: int
    created_s: float
    cpu_s: float
    """The user and system time that the process has used so far."""


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


def busy_pct(
    rank: int, owners: Mapping[int, int], before_s: Mapping[int, float], after_s: Mapping[int, float], room_s: float
) -> float | None:
    """Return the percentage of `room_s` that a rank and its helper processes used, at most 100.

    `before_s` and `after_s` are two measurements of the CPU time used so far, by pid. `room_s` is the CPU time that
    the rank's cores offer between them. Returns None when the rank is missing from either measurement.
    """
    if room_s <= 0 or rank not in before_s or rank not in after_s:
        return None
    pids = [pid for pid, owner in owners.items() if owner == rank and pid in before_s and pid in after_s]
    spent_s = sum(max(0.0, after_s[pid] - before_s[pid]) for pid in pids)
    return min(100.0, 100 * spent_s / room_s)


class CpuSource:
    """Measures the CPU share of each rank in the attached process tree. The devices are named `cpu:0`, `cpu:1`, ….

    The cores are divided evenly among the ranks. A rank's share is the CPU time that it used since the previous
    measurement, as a percentage of what its cores offered. Its memory is the resident set of its own process, and the
    total is all memory that this process may use. The source looks for the rank processes once a second. A value is
    None while its rank is unknown or after the rank has ended.
    """

    label = "process_cpu"

    def __init__(
        self, ranks: int, cores: int | None = None, open_process: Callable[[int], psutil.Process] = psutil.Process
    ) -> None:
        model, total_mib = cpu_model(), mib(usable_memory())
        self._devices = tuple(Device(name=f"cpu:{rank}", model=model, mem_total_mib=total_mib) for rank in range(ranks))
        self._cores_per_rank = max(1, (cores or usable_cores()) // ranks)
        self._open_process = open_process
        self._follow(None)

    @property
    def devices(self) -> tuple[Device, ...]:
        """Return one device per rank."""
        return self._devices

    def attach(self, pid: int) -> None:
        """Follow the process `pid` and all processes below it from now on."""
        try:
            self._follow(self._open_process(pid))
        except psutil.Error:
            self._follow(None)

    def sample(self, t_s: float) -> list[DeviceSample]:
        """Measure every rank once. A process that has ended is not an error."""
        if t_s >= self._rescan_at_s:
            self._tree.rescan()
            self._rescan_at_s = t_s + _RESCAN_S
        before_at_s, before_s = self._before
        after_s = self._tree.cpu_s()
        self._before = t_s, after_s
        room_s = (t_s - before_at_s) * self._cores_per_rank
        ranks: list[int | None] = [*self._tree.ranks, *[None] * len(self._devices)]
        return [
            DeviceSample(
                t_s=t_s,
                device=position,
                util_pct=None if rank is None else busy_pct(rank, self._tree.owners, before_s, after_s, room_s),
                mem_used_mib=None if rank is None else self._tree.memory_mib(rank),
                mem_total_mib=device.mem_total_mib,
            )
            for position, (device, rank) in enumerate(zip(self._devices, ranks, strict=False))
        ]

    def _follow(self, root: psutil.Process | None) -> None:
        self._tree = _ProcessTree(root, len(self._devices))
        self._rescan_at_s = -math.inf
        self._before: tuple[float, dict[int, float]] = math.inf, {}


class _ProcessTree:
    """A root process and all processes below it, as of the last search, and which of them are ranks."""

    def __init__(self, root: psutil.Process | None, count: int) -> None:
        self._processes: dict[int, psutil.Process] = {}
        self._root = root
        self._count = count
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

    def cpu_s(self) -> dict[int, float]:
        """Return the CPU time that each process of a rank has used so far, by pid."""
        spent_s = {}
        for pid in self.owners:
            with suppress(psutil.Error):
                spent_s[pid] = _cpu_s(self._processes[pid])
        return spent_s

    def memory_mib(self, pid: int) -> float | None:
        """Return the resident memory of one process, or None when the process has ended."""
        with suppress(psutil.Error):
            return mib(self._processes[pid].memory_info().rss) or None
        return None


def _usage(process: psutil.Process) -> ProcessUsage | None:
    with suppress(psutil.Error), process.oneshot():
        return ProcessUsage(
            pid=process.pid, parent=process.ppid(), created_s=process.create_time(), cpu_s=_cpu_s(process)
        )
    return None


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def cpu_model() -> str:
    """Return the processor's name from /proc/cpuinfo, or its architecture when the file has no name."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()
