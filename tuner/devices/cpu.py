"""Ranks on the CPU: which share of the machine's processors they and others use, within the limits of cgroups.

A rank is a process of the training that has a share of the work; processes below it, such as those of its data loader,
are its helpers. The team is the workers of one search on this machine, each of which runs probes of its own.

The kernel shows a counter for each part of a processor (RAPL, `Documentation/power/powercap` of Linux): it grows by the
energy that the part has used. A zone is the folder of one such part.
"""

import heapq
import math
import os
import platform
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import psutil

from tuner.probe import Device, DeviceSample, mib

COUNTERS = "/sys/class/powercap"
"""Where the kernel shows the counters of energy."""


class Rapl:
    """The energy of all processor packages together. Memory and other devices are not in it.

    Most kernels let only root read them (CVE-2020-8694).
    """

    def __init__(self, root: Path = Path("/")) -> None:
        """Find the counters of the processors' energy. `root`: the folder in which `sys` lies."""
        self._counters: list[_Counter] = []
        for zone in sorted((root / COUNTERS.lstrip("/")).glob("intel-rapl:*")):
            # a whole package, rather than a part of one or the whole machine
            with suppress(OSError):
                is_top = re.fullmatch(r"intel-rapl:\d+", zone.name) is not None
                if is_top and (zone / "name").read_text(encoding="ascii").startswith("package"):
                    self._counters.append(_Counter(zone))

    def total_j(self) -> float | None:
        """Return the joules since this object was made; None where a counter cannot be read."""
        totals = [counter.total_uj() for counter in self._counters]
        known = [total for total in totals if total is not None]
        return sum(known) / 1e6 if known and len(known) == len(totals) else None


class _Counter:
    """The counter of one package, which begins again at 0 when it has reached its largest value."""

    def __init__(self, zone: Path) -> None:
        self._zone = zone
        self._before = self._read("energy_uj")
        """The last reading in microjoules; None where it cannot be read."""
        self._total = 0
        """The microjoules since the beginning."""

    def total_uj(self) -> int | None:
        """Return the microjoules since the beginning; None where they cannot be read."""
        now = self._read("energy_uj")
        if now is None or self._before is None:
            return None
        gained = now - self._before
        if gained < 0:  # the counter has begun again
            gained += self._read("max_energy_range_uj") or 0
        self._total += gained
        self._before = now
        return self._total

    def _read(self, name: str) -> int | None:
        """Return the number in a file of the counter; None where it cannot be read."""
        with suppress(OSError, ValueError):
            return int((self._zone / name).read_text(encoding="ascii"))
        return None


def usable_cores(root: Path = Path("/")) -> int:
    """Return the number of cores that this process may use, at least one.

    A container often gets a share of the time of all cores, rather than certain cores. The share is converted to a
    number of cores and rounded up: 150 ms in each period of 100 ms are two cores.
    """
    quotas = (quota / period for quota, period in _limits(root, "cpu"))
    return min([len(os.sched_getaffinity(0)), *map(math.ceil, quotas)])


def usable_memory(root: Path = Path("/")) -> int:
    """Return the bytes of memory that this process and the other processes of its control groups may use together."""
    return min([psutil.virtual_memory().total, *(limit for (limit,) in _limits(root, "memory"))])


def _limits(root: Path, controller: str) -> Iterator[list[int]]:
    """Yield the limits that hold for this process: those of its control group and of every group above it.

    For the controller `cpu`, a limit is two numbers: the microseconds of processor time in each period, and the
    period's microseconds. For `memory` it is one: bytes. A container may know the full path of its group but see only
    its own folder. That folder then lies at the root of the tree, so the root is searched too. `root`: the folder in
    which `proc` and `sys` lie.
    """
    unified = {"cpu": ["cpu.max"], "memory": ["memory.max"]}  # of version 2 of cgroups
    legacy = {"cpu": ["cpu.cfs_quota_us", "cpu.cfs_period_us"], "memory": ["memory.limit_in_bytes"]}
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text(encoding="utf-8", errors="replace").splitlines():
            _, controllers, path = line.split(":", 2)
            if controller in controllers.split(","):  # such as `4:cpu,cpuacct:/docker/1234`
                mount, files = root / "sys/fs/cgroup" / controller, legacy[controller]
            elif not controllers:  # such as `0::/user.slice`: version 2
                mount, files = root / "sys/fs/cgroup", unified[controller]
            else:
                continue
            group = mount / path.lstrip("/")
            for folder in (group, *group.parents):  # every group above limits this one, too
                if not folder.is_relative_to(mount):
                    break
                with suppress(OSError, ValueError):  # a group without a limit says `max` or -1
                    texts = [(folder / file).read_text(encoding="utf-8") for file in files]
                    numbers = [int(word) for text in texts for word in text.split()]
                    if numbers and min(numbers) > 0:
                        yield numbers


class CpuTime(NamedTuple):
    """The CPU time that one process has used so far, in seconds."""

    own_s: float = 0.0
    """The user and system time of the process itself."""
    reaped_s: float = 0.0
    """The time of its children that have ended and that it has waited for (getrusage(2), RUSAGE_CHILDREN)."""

    @property
    def total_s(self) -> float:
        """The time of the process and of its ended children."""
        return self.own_s + self.reaped_s


class ProcessUsage(NamedTuple):
    """How much CPU time one process of the trainer's tree has used at one moment."""

    pid: int
    parent: int
    created_s: float
    cpu_s: float
    """The time that the process and its ended children have used so far."""
    local_rank: int | None = None
    """The number that its launcher has given it by `LOCAL_RANK`, as torchrun does; None without one."""


Times = Mapping[int, CpuTime]
"""The CPU time of each process, by pid."""


def find_ranks(tree: Sequence[ProcessUsage], count: int) -> list[int]:
    """Return the pids of the ranks in a trainer's process tree, in the order of the ranks. `count`: their number.

    A rank has a `LOCAL_RANK` that its parent process does not have; helpers inherit it. Of several such processes with
    one number, the oldest is the rank: a helper whose parent has ended gets another parent. If this does not find
    `count` ranks, they are the `count` processes that have used the most CPU time, the oldest first.
    """
    oldest_first = sorted(tree, key=lambda process: (process.created_s, process.pid))
    numbers = {process.pid: process.local_rank for process in tree}
    pids: dict[int, int] = {}
    for process in oldest_first:
        if process.local_rank is not None and process.local_rank != numbers.get(process.parent):
            pids.setdefault(process.local_rank, process.pid)
    if len(pids) == count:
        return [pid for _, pid in sorted(pids.items())]
    busiest = heapq.nlargest(count, tree, key=lambda process: process.cpu_s)
    return [process.pid for process in oldest_first if process in busiest]


def find_owners(tree: Sequence[ProcessUsage], ranks: Sequence[int]) -> dict[int, int]:
    """Return the pid of each process → the pid of the rank that it works for.

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
    """Return the CPU time in seconds that some processes and their ended children used between two measurements.

    A process that is new in `after` has used all its time since the first measurement. When a process ends, the kernel
    adds its whole time to the `reaped_s` of its parent. Of this, what it had used before the first measurement is
    subtracted.

    Args:
        before: pid → the CPU time of the process in the first measurement.
        after: the same of the second measurement.
    """
    own_s = newly_reaped_s = 0.0
    for pid, now in after.items():
        earlier = before.get(pid, CpuTime())
        own_s += max(0.0, now.own_s - earlier.own_s)
        newly_reaped_s += now.reaped_s - earlier.reaped_s
    used_before_s = sum(time.total_s for pid, time in before.items() if pid not in after)  # by those that have ended
    return own_s + max(0.0, newly_reaped_s - used_before_s)


class ProcessMemory(NamedTuple):
    """The memory of a process in MiB."""

    now_mib: float | None = None
    peak_mib: float | None = None
    """The most so far; None where that is unknown."""


@dataclass(slots=True)
class DataPeak:
    """The peak of a process's data memory, as RLIMIT_DATA counts it (setrlimit(2)): what it has allocated for itself.

    The kernel limits the data memory but keeps no peak of it, so the peak is estimated. The kernel keeps the peaks of
    resident and of mapped memory. Each gives an estimate that may be too large, because files in memory count as
    resident, and reserved space as mapped. So the smaller estimate counts.
    """

    by_resident_mib: float = 0.0
    """The estimate from the peak of resident memory."""
    by_mapped_mib: float = 0.0
    """The estimate from the peak of mapped memory."""
    resident_mib: float = 0.0
    """The peak of resident memory in the last reading."""
    gaps_mib: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=10))
    """Data less resident, and data less mapped memory, in the last readings: a start maps libraries, and they stay."""

    def updated_mib(self, data_mib: float, resident: ProcessMemory, mapped: ProcessMemory) -> float:
        """Take a new reading of data, resident and mapped memory into account, and return the peak of the data in MiB.

        How much data there was at the peak of resident memory is unknown. The estimate is that peak plus the difference
        of data and resident memory, the smallest one in the last readings. Mapped memory gives a second estimate in the
        same way. The smaller estimate counts, unless there is more data now.
        """
        resident_peak_mib, mapped_peak_mib = resident.peak_mib or 0.0, mapped.peak_mib or 0.0
        self.gaps_mib.append((data_mib - (resident.now_mib or 0.0), data_mib - (mapped.now_mib or 0.0)))
        resident_gap_mib = min(to_resident for to_resident, _ in self.gaps_mib)
        mapped_gap_mib = min(to_mapped for _, to_mapped in self.gaps_mib)
        if resident_peak_mib > self.resident_mib:  # only a new peak: an older one may have had another gap
            self.by_resident_mib = max(self.by_resident_mib, resident_peak_mib + resident_gap_mib)
        self.by_mapped_mib = max(self.by_mapped_mib, mapped_peak_mib + mapped_gap_mib)
        self.resident_mib = resident_peak_mib
        return max(data_mib, min(self.by_resident_mib, self.by_mapped_mib))


Peaks = dict[int, DataPeak]
"""The peak of each process's data memory, by pid."""


def data_memory(pid: int, peaks: Peaks, root: Path = Path("/")) -> ProcessMemory | None:
    """Return the data memory of a process now, and its peak, by /proc/PID/status (proc(5)); None when it has ended.

    Args:
        pid: The process.
        peaks: pid → the estimate of the process's peak, from earlier readings. This reading updates it.
        root: The root folder, below which `proc` lies.
    """
    with suppress(OSError, ValueError, KeyError):
        status = (root / f"proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
        rows = dict(line.split(":", 1) for line in status.splitlines() if line.startswith("Vm"))
        sizes_mib = {name: int(text.split()[0]) / 1024 for name, text in rows.items()}  # the kernel writes KiB
        resident = ProcessMemory(sizes_mib["VmRSS"], sizes_mib["VmHWM"])
        mapped = ProcessMemory(sizes_mib["VmSize"], sizes_mib["VmPeak"])
        data_mib = sizes_mib["VmData"]
        peak = peaks.setdefault(pid, DataPeak())
        return ProcessMemory(data_mib, peak.updated_mib(data_mib, resident, mapped))
    return None


class ProcessTree:
    """A root process and all processes below it, as of the last search, and which of them are ranks."""

    def __init__(self, root: psutil.Process | None, count: int) -> None:
        """Follow the processes at and below `root`; None for no process. `count`: the number of ranks."""
        self._processes: dict[int, psutil.Process] = {}
        """The processes by pid."""
        self._root = root
        self._count = count
        self._helpers_mib: dict[int, float] = {}
        """The pid of a rank → the memory of its helper processes."""
        self.ranks: list[int] = []
        """The pids of the ranks, the oldest first."""
        self.owners: dict[int, int] = {}
        """pid → the pid of the rank that this process works for."""

    def rescan(self) -> None:
        """Find out again which processes run below the root, which of them are ranks, and which help which rank.

        When the root has ended, the processes of the last search are kept.
        """
        if self._root is None:
            return
        with suppress(psutil.Error):
            tree = (self._root, *self._root.children(recursive=True))
            self._processes = {process.pid: process for process in tree}
        usages: list[ProcessUsage] = []
        for pid, process in self._processes.items():
            with suppress(psutil.Error), process.oneshot():  # it may have ended
                parent, created_s, cpu_s = process.ppid(), process.create_time(), _cpu_time(process).total_s
                usages.append(ProcessUsage(pid, parent, created_s, cpu_s, _local_rank(process)))
        self.ranks = find_ranks(usages, self._count)
        self.owners = find_owners(usages, self.ranks)
        self._helpers_mib = dict.fromkeys(self.ranks, 0.0)
        for pid, rank_pid in self.owners.items():
            if pid != rank_pid:  # a rank works for itself, and is no helper
                with suppress(psutil.Error):
                    self._helpers_mib[rank_pid] += mib(self._processes[pid].memory_full_info().pss)

    def largest(self, peaks: Peaks) -> list[int]:
        """Return the pids of the processes with the most data memory, as many as there are ranks; update `peaks`.

        Where memory is limited, each process has a limit of its own, so the largest run out first. They need not be the
        `ranks`: those may be found by CPU time, and then at first name the process that starts the ranks.
        """
        data_mib = {pid: memory.now_mib or 0.0 for pid in self._processes if (memory := data_memory(pid, peaks))}
        return sorted(heapq.nlargest(self._count, data_mib, key=data_mib.__getitem__))

    def times(self) -> dict[int, CpuTime]:
        """Return the CPU time of each process."""
        times: dict[int, CpuTime] = {}
        for pid, process in self._processes.items():
            with suppress(psutil.Error):
                times[pid] = _cpu_time(process)
        return times

    def memory_mib(self, rank_pid: int) -> float | None:
        """Return the resident memory of a rank and its helper processes; None when the rank has ended.

        Of memory that helpers share with other processes, each sharer counts its part (proc(5), Pss). The helpers'
        memory is that of the last search.
        """
        with suppress(psutil.Error):
            own_mib = mib(self._processes[rank_pid].memory_info().rss)
            return own_mib + self._helpers_mib.get(rank_pid, 0.0) or None  # a process that is ending may show 0
        return None


TEAM = "TUNER_TEAM"
"""The environment variable with the pid of the process that leads the workers of a search on this machine."""


class OtherPrograms:
    """Measures how busy other programs keep this machine: all but the trainer, the tuner, and its team of workers."""

    def __init__(
        self,
        cores: int | None = None,
        busy_s: Callable[[], float] | None = None,
        team: psutil.Process | None = None,
    ) -> None:
        """Measure how busy all other programs are.

        No share is known where this process may use only some of the machine's processors.

        Args:
            cores: the processors of the machine; None asks the system.
            busy_s: returns the processors' time that all programs have used since boot; None asks the system.
            team: the leader of a team of workers, below which all their probes run; None asks the environment.
        """
        if team is None:
            with suppress(psutil.Error, ValueError):
                team = psutil.Process(int(os.environ.get(TEAM, "")))
        self._team = ProcessTree(team, count=0) if team else None
        self._team_before: tuple[float, Times] = -math.inf, {}
        """When the team's processes were looked up last, and their CPU time when `share_pct` was called last."""
        self._busy_s = busy_s or machine_busy_s
        self.cores = cores or psutil.cpu_count() or 1
        self._is_whole_machine = cores is not None or usable_cores() >= self.cores
        self._before: tuple[float, float, float] = math.inf, 0.0, 0.0
        """When `share_pct` was called last, and the CPU time that the machine and the tuner had used then."""

    def share_pct(self, t_s: float, trainer_s: float) -> float | None:
        """Return the percentage of all processors that others have used since the last call; None where it is unknown.

        A short interval may give less than 0.

        Args:
            t_s: The time now.
            trainer_s: The CPU time in seconds that the trainer has used since the last call.
        """
        before_s, machine_before_s, tuner_before_s = self._before
        machine_now_s, tuner_now_s = self._busy_s(), time.process_time()
        team_s = self._team_s(t_s)
        self._before = t_s, machine_now_s, tuner_now_s
        if not self._is_whole_machine or t_s <= before_s:  # the first call has no interval
            return None
        # the tuner and its trainer belong to the team, if there is one
        known_s = trainer_s + tuner_now_s - tuner_before_s if team_s is None else team_s
        others_s = machine_now_s - machine_before_s - known_s
        return 100.0 * others_s / (self.cores * (t_s - before_s))

    def _team_s(self, t_s: float) -> float | None:
        """Return the CPU time that the team has used since the last call, this worker included; None without a team."""
        if self._team is None:
            return None
        scanned_s, before = self._team_before
        if not scanned_s <= t_s < scanned_s + 1.0:  # a search through all processes is slow; a probe begins at 0
            self._team.rescan()
            scanned_s = t_s
        after = self._team.times()
        self._team_before = scanned_s, after
        return spent_s(before, after)


def machine_busy_s() -> float:
    """Return the CPU time that all processes of the machine have used since its start (proc(5), /proc/stat)."""
    times = psutil.cpu_times()
    return times.user + times.nice + times.system + times.irq + times.softirq


def _local_rank(process: psutil.Process) -> int | None:
    """Return the number of a rank on its machine, by the environment with which it was started; None without one."""
    with suppress(psutil.Error):
        number = process.environ().get("LOCAL_RANK", "")
        return int(number) if number.isdecimal() else None
    return None


def _cpu_time(process: psutil.Process) -> CpuTime:
    """Return the CPU time that a process has used so far. Raises psutil.Error when it has ended."""
    times = process.cpu_times()
    return CpuTime(own_s=times.user + times.system, reaped_s=times.children_user + times.children_system)


class ThreadTimes(NamedTuple):
    """What a thread has done so far, in seconds."""

    ran_s: float = 0.0
    waited_s: float = 0.0
    """The time in which it could have run, and no processor was free."""


def thread_times(pid: int, root: Path = Path("/")) -> dict[str, ThreadTimes]:
    """Return thread → its times, for a process (Documentation/scheduler/sched-stats); empty where they are unknown."""
    threads: dict[str, ThreadTimes] = {}
    with suppress(OSError):
        for folder in (root / f"proc/{pid}/task").iterdir():
            with suppress(OSError, ValueError):  # a thread that ends meanwhile
                ran, waited, _ = (folder / "schedstat").read_text(encoding="utf-8").split()
                threads[folder.name] = ThreadTimes(int(ran) / 1e9, int(waited) / 1e9)
    return threads


class Delays:
    """Measures how long other programs make the ranks of a training wait for a processor."""

    def __init__(self, read: Callable[[int], Mapping[str, ThreadTimes]] = thread_times) -> None:
        """Measure the ranks' waits for a processor. `read` returns the times of a process's threads."""
        self._read = read
        self._before: tuple[float, dict[int, Mapping[str, ThreadTimes]]] = -math.inf, {}
        """When threads were read last, and their times then, by process."""
        self._trainer_s = 0.0
        """The processors' time that the training has used since threads were read last."""
        self._others_s = 0.0
        """The processors' time that all other programs have used since then."""
        self._shares: dict[int, float] = {}
        """What `shares_pct` returned last."""

    def shares_pct(
        self, t_s: float, owners: Mapping[int, int], *, trainer_s: float, others_s: float | None
    ) -> Mapping[int, float]:
        """Return the pid of each rank → the percentage of the time in which other programs made it wait.

        Of the threads of a rank and its helpers, the one that waited longest counts. For the part of a wait that other
        programs cause, see `_caused_s`. Threads are read once a second; calls in between return the last answer.

        Args:
            t_s: the time now.
            owners: the pid of a process → the pid of the rank that it works for.
            trainer_s: the processors' time that all processes of the training used since the last call.
            others_s: the processors' time that all other programs used since then; None where it is unknown.
        """
        before_s, before = self._before
        self._trainer_s += trainer_s
        self._others_s += max(0.0, others_s or 0.0)
        if t_s - before_s < 1.0:  # second: reading 31 threads takes half a millisecond
            return self._shares
        now = {pid: self._read(pid) for pid in owners}
        shares: dict[int, float] = {}
        read_twice = now.keys() & before.keys() if others_s is not None else set[int]()  # others unknown: no shares
        for pid in read_twice:
            waits_s = [
                _caused_s(before[pid].get(thread, ThreadTimes()), times, self._trainer_s, self._others_s)
                for thread, times in now[pid].items()
            ]
            # at most 99 %: clocks that are read one after the other may show a longer wait than the time between
            share_pct = min(99.0, 100.0 * max(waits_s, default=0.0) / (t_s - before_s))
            shares[owners[pid]] = max(share_pct, shares.get(owners[pid], 0.0))
        self._before, self._shares, self._trainer_s, self._others_s = (t_s, now), shares, 0.0, 0.0
        return shares


def _caused_s(before: ThreadTimes, now: ThreadTimes, trainer_s: float, others_s: float) -> float:
    """Return the estimated part of a thread's waiting between two readings that other programs have caused, in seconds.

    A thread waits while other programs, or other threads of the training, run. The wait is divided between these two in
    proportion to their time on the processors: `others_s`, and `trainer_s` without the thread's own time.
    """
    other_threads_s = max(0.0, trainer_s - (now.ran_s - before.ran_s))
    waited_s = now.waited_s - before.waited_s
    return waited_s * others_s / (others_s + other_threads_s) if others_s > 0.0 else 0.0


class CpuSource:
    """Measures the CPU share of each rank in the attached process tree. Its devices are named `cpu:0`, `cpu:1`, ….

    The cores are divided evenly among the ranks. A rank's share is the CPU time that it and its helper processes used
    since the previous measurement, as a percentage of what its cores offered. It may exceed 100 for a moment, because
    the time of a short-lived child is known only once the child has ended. Its memory is that of these processes, and
    the total is all memory that this process may use. The source looks for the rank processes once a second. A value is
    None while its rank is unknown or after the rank has ended.
    """

    label = "process_cpu"

    def __init__(
        self,
        ranks: int,
        cores: int | None = None,
        open_process: Callable[[int], psutil.Process] = psutil.Process,
        *,
        other_programs: OtherPrograms | None = None,
        memory_mib: float | None = None,
        read_threads: Callable[[int], Mapping[str, ThreadTimes]] = thread_times,
        rapl: Rapl | None = None,
    ) -> None:
        """Measure the ranks of a training on the CPU.

        Args:
            ranks: The number of ranks.
            cores: The cores that all ranks together may use; None for those that this process may use.
            open_process: Returns the process with an id.
            other_programs: Measures how busy other programs are; None for the usual way.
            memory_mib: The limit of each process's data memory. With a limit, only data memory is measured.
            read_threads: Returns the times of a process's threads.
            rapl: Reads the processors' counters of energy; None for those of this machine.
        """
        self._is_limited = memory_mib is not None
        model, total_mib = cpu_model(), memory_mib or mib(usable_memory())
        self.devices = tuple(Device(name=f"cpu:{rank}", model=model, mem_total_mib=total_mib) for rank in range(ranks))
        """One device per rank."""
        self._cores_per_rank = max(1, (cores or usable_cores()) // ranks)
        self._open_process = open_process
        self._other_programs = other_programs or OtherPrograms()
        self._read_threads = read_threads
        self._rapl = rapl or Rapl()
        self._follow(None)

    def attach(self, pid: int) -> None:
        """Follow the process `pid` and all processes below it from now on."""
        try:
            self._follow(self._open_process(pid))
        except psutil.Error:
            self._follow(None)

    def sample(self, t_s: float) -> list[DeviceSample]:
        """Return a sample of every rank, taken now, with None for each value of a rank that is unknown or has ended."""
        if t_s >= self._rescan_at_s:
            self._tree.rescan()
            self._largest = self._tree.largest(self._peaks) if self._is_limited else []
            self._rescan_at_s = t_s + 1.0  # a search through all processes is slow

        # what the training, other programs and the processors have used since the last sample
        before_s, before = self._before
        after, owners_before, self._owners = self._tree.times(), self._owners, self._tree.owners
        self._before = t_s, after
        trainer_s = spent_s(before, after)
        others_pct = self._other_programs.share_pct(t_s, trainer_s)
        others_s = None if others_pct is None else others_pct / 100.0 * self._other_programs.cores * (t_s - before_s)
        energy_j = self._rapl.total_j()
        delayed_pct = self._delays.shares_pct(t_s, self._owners, trainer_s=trainer_s, others_s=others_s)

        def share_pct(rank_pid: int) -> float | None:
            """Return the percentage of its cores that a rank used since the last sample; None where it is unknown."""
            offered_s = (t_s - before_s) * self._cores_per_rank
            if offered_s <= 0 or rank_pid not in before or rank_pid not in after:
                return None
            # with the helpers that belonged to the rank before: they may have ended, or have another owner now
            rank_before = {**_of_rank(rank_pid, owners_before, before), **_of_rank(rank_pid, self._owners, before)}
            return 100 * spent_s(rank_before, _of_rank(rank_pid, self._owners, after)) / offered_s

        # the pid of each device's rank, and of the process whose memory is measured; None where they are unknown
        unknown: list[int | None] = [None] * len(self.devices)
        ranks = [*self._tree.ranks, *unknown]
        holders = [*self._largest, *unknown] if self._is_limited else ranks
        samples: list[DeviceSample] = []
        for position, (device, rank_pid, holder) in enumerate(zip(self.devices, ranks, holders, strict=False)):
            memory = self._memory(holder)
            sample = DeviceSample(
                t_s=t_s,
                device=position,
                util_pct=None if rank_pid is None else share_pct(rank_pid),
                mem_used_mib=memory.now_mib,
                mem_peak_mib=memory.peak_mib,
                mem_total_mib=device.mem_total_mib,
                energy_j=None if energy_j is None else energy_j / len(self.devices),  # counted for the whole machine
                others_pct=others_pct,
                delayed_pct=None if rank_pid is None else delayed_pct.get(rank_pid),
            )
            samples.append(sample)
        return samples

    def _memory(self, pid: int | None) -> ProcessMemory:
        """Return the memory of a rank, or under a limit the data memory of a process; without numbers for None."""
        if pid is None:
            return ProcessMemory()
        limited = data_memory(pid, self._peaks) if self._is_limited else None
        return limited or ProcessMemory(self._tree.memory_mib(pid))

    def _follow(self, root: psutil.Process | None) -> None:
        """Follow a process and those below it from now on, and forget all others. `root`: None follows nothing."""
        self._peaks: Peaks = {}
        self._largest: list[int] = []
        """The pids of the processes with the most data memory. Under a limit, theirs is measured, not that of ranks."""
        self._tree = ProcessTree(root, len(self.devices))
        self._rescan_at_s = -math.inf
        """When the tree is next searched for processes; at once at first."""
        self._owners: dict[int, int] = {}
        """pid → the pid of the rank that this process worked for at the last sample."""
        self._delays = Delays(self._read_threads)
        self._before: tuple[float, Times] = math.inf, {}
        """When the last sample was taken, and the CPU time of each process then. Infinite before the first sample: no
        time has passed since then, so no share is known."""


def _of_rank(rank_pid: int, owners: dict[int, int], times: Times) -> Times:
    """Return the entries of `times` whose processes work for a rank. `owners`: pid of a process → pid of its rank."""
    return {pid: time for pid, time in times.items() if owners.get(pid) == rank_pid}


def cpu_model() -> str:
    """Return the processor's name from /proc/cpuinfo, or its architecture when the file has no name."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()
