"""Measures the CPU share of each rank, for machines without a GPU."""

import math
import platform
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from tuner.devices.cgroups import usable_cores, usable_memory
from tuner.devices.cpu_time import Others, ProcessTree, Times, spent_s
from tuner.probe.plan import Device
from tuner.probe.result import DeviceSample
from tuner.units import mib

_RESCAN_S = 1.0
"""The seconds between two searches for the processes that are ranks."""


class CpuSource:
    """Measures the CPU share of each rank in the attached process tree. The devices are named `cpu:0`, `cpu:1`, ….

    The cores are divided evenly among the ranks. A rank's share is the CPU time that it and its helper processes used
    since the previous measurement, as a percentage of what its cores offered. It may exceed 100 for a moment, because
    the time of a child that lives shortly is known once the child has ended. Its memory is that of these processes, and
    the total is all memory that this process may use. The source looks for the rank processes once a second. A value is
    None while its rank is unknown or after the rank has ended.
    """

    label = "process_cpu"

    def __init__(
        self,
        ranks: int,
        cores: int | None = None,
        open_process: Callable[[int], psutil.Process] = psutil.Process,
        others: Others | None = None,
    ) -> None:
        model, total_mib = cpu_model(), mib(usable_memory())
        self._devices = tuple(Device(name=f"cpu:{rank}", model=model, mem_total_mib=total_mib) for rank in range(ranks))
        self._cores_per_rank = max(1, (cores or usable_cores()) // ranks)
        self._open_process = open_process
        self._others = others or Others()
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
        before_at_s, before = self._before
        after, owners_before, self._owners = self._tree.times(), self._owners, self._tree.owners
        self._before = t_s, after
        others_pct = self._others.share_pct(t_s, spent_s(before, after))

        def share_pct(rank: int) -> float | None:
            room_s = (t_s - before_at_s) * self._cores_per_rank
            if room_s <= 0 or rank not in before or rank not in after:
                return None
            own_before = {**_of(rank, owners_before, before), **_of(rank, self._owners, before)}
            return 100 * spent_s(own_before, _of(rank, self._owners, after)) / room_s

        ranks: list[int | None] = [*self._tree.ranks, *[None] * len(self._devices)]
        return [
            DeviceSample(
                t_s=t_s,
                device=position,
                util_pct=None if rank is None else share_pct(rank),
                mem_used_mib=None if rank is None else self._tree.memory_mib(rank),
                mem_total_mib=device.mem_total_mib,
                others_pct=others_pct,
            )
            for position, (device, rank) in enumerate(zip(self._devices, ranks, strict=False))
        ]

    def _follow(self, root: psutil.Process | None) -> None:
        self._tree = ProcessTree(root, len(self._devices))
        self._rescan_at_s = -math.inf
        self._owners: dict[int, int] = {}
        self._before: tuple[float, Times] = math.inf, {}


def _of(rank: int, owners: dict[int, int], times: Times) -> Times:
    """Return the times of the processes that work for a rank."""
    return {pid: one for pid, one in times.items() if owners.get(pid) == rank}


def cpu_model() -> str:
    """Return the processor's name from /proc/cpuinfo, or its architecture when the file has no name."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()
