"""The NVIDIA cards of this machine outside a probe: who uses them, when they are free, which cores are near.

A probe is one measured run of a trainer; in a session, one started trainer serves several probes. What a card is used
for already when a study opens does not count as busy, so later states are compared with that at the opening.
"""

import math
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import pynvml

from tuner.devices.drivers import Nvml
from tuner.errors import DeviceError, DeviceLostError
from tuner.probe import NVIDIA, STOPPED, Clock, Device, Failure, FailureKind, mib, unreadable


def near_cores(nvml: Nvml, uuids: Sequence[str]) -> frozenset[int]:
    """Return the numbers of the CPU cores near any of the cards; empty when the driver does not report them.

    Raises DeviceError when a card does not answer.
    """
    bits = 64  # in a mask of NVML, one for each core (nvml.h, nvmlDeviceGetCpuAffinity)
    count = math.ceil((os.cpu_count() or 1) / bits)
    cores: set[int] = set()
    for uuid in uuids:
        masks = nvml.ask(uuid, nvml.library.nvmlDeviceGetCpuAffinity, nvml.handle(uuid), count) or ()
        for position, mask in enumerate(masks):
            first_core = position * bits
            cores |= {first_core + bit for bit in range(bits) if int(mask) >> bit & 1}
    return frozenset(cores)


def disjoint_cores(nearby: Sequence[Collection[int]], allowed: Collection[int]) -> list[list[int]]:
    """Return for each worker the cores to which it is pinned: disjoint, and near its cards where possible. Pure.

    Workers that are near the same cores get equal parts of them, one block after the other: two workers near cores 0 to
    3 get [0, 1] and [2, 3].

    Args:
        nearby: for each worker, the cores near its cards; empty for all allowed cores.
        allowed: the cores that this process may use.

    Returns:
        A list is empty where fewer cores are allowed than there are workers; that worker is not pinned.
    """
    free = sorted(allowed)
    wanted = [set(cores) & set(free) or set(free) for cores in nearby]
    shares: list[list[int]] = []
    for worker, cores in enumerate(wanted):
        sharers = 1 + sum(bool(cores & later) for later in wanted[worker + 1 :])  # this worker, and later ones
        candidates = [core for core in free if core in cores]
        shares.append(candidates[: len(candidates) // sharers])
        free = [core for core in free if core not in shares[-1]]
    return shares


@dataclass(frozen=True, kw_only=True, slots=True)
class Occupant:
    """A process that computes on a card."""

    pid: int
    """The driver's process id. Inside a container, the same process may have another id."""
    mem_mib: float | None = None
    """The memory of the card that the process uses; None when the driver does not report it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Occupancy:
    """How much of a card is in use at one moment, and by which processes."""

    device: Device
    """The card with all its memory, also where a study lets a trainer use less."""
    mem_used_mib: float | None = None
    util_pct: float | None = None
    """The utilisation over the driver's last interval, which is up to a second long."""
    occupants: tuple[Occupant, ...] = ()
    """The processes that compute on the card. Empty inside a container that hides other processes."""


class Clocks(NamedTuple):
    """How fast a card's multiprocessors run at one moment."""

    device: Device
    sm_mhz: int | None = None
    """The frequency; None when the driver does not report it."""
    sm_max_mhz: int | None = None
    """The highest frequency of the card; None when the driver does not report it."""
    slowed_by: tuple[str, ...] | None = None
    """What lowers the clocks, other than idleness; None when the driver does not report it."""


class Cards:
    """Asks the driver about the NVIDIA GPUs among `devices`. Without such a GPU, the driver is never asked.

    Raises DeviceError when a card does not answer.
    """

    SLOWED_BY: ClassVar = {
        pynvml.nvmlClocksThrottleReasonApplicationsClocksSetting: "clocks set by hand",
        pynvml.nvmlClocksThrottleReasonSwPowerCap: "power limit",
        pynvml.nvmlClocksThrottleReasonHwSlowdown: "hardware slowdown",
        pynvml.nvmlClocksThrottleReasonSyncBoost: "sync boost with a slower card",
        pynvml.nvmlClocksThrottleReasonSwThermalSlowdown: "heat (driver)",
        pynvml.nvmlClocksThrottleReasonHwThermalSlowdown: "heat (hardware)",
        pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown: "power brake",
        pynvml.nvmlClocksThrottleReasonDisplayClockSetting: "clocks set by the display",
    }
    """NVML's reasons for clocks below the maximum (nvml.h, nvmlClocksThrottleReasons), each with a name for people.

    The reason "GPU idle" is left out, because an idle card speeds up as soon as it has work.
    """

    def __init__(self, devices: Sequence[Device], connect: Callable[[], Nvml] = Nvml) -> None:
        """Find the cards in the driver that `connect` starts."""
        self._devices = [device for device in devices if device.uuid is not None and device.maker == NVIDIA]
        if self._devices:
            self._nvml = connect()
            self._handles = {device.name: self._nvml.handle(device.uuid or "") for device in self._devices}

    def occupancy(self) -> tuple[Occupancy, ...]:
        """Return how much of each card is in use now, and by which processes."""
        return tuple(self._occupancy(device) for device in self._devices)

    def clocks(self) -> tuple[Clocks, ...]:
        """Return each card's clocks now."""
        return tuple(self._clocks(device) for device in self._devices)

    def _occupancy(self, device: Device) -> Occupancy:
        """Return how much of one card is in use now."""
        library = self._nvml.library
        memory = self._ask(device, library.nvmlDeviceGetMemoryInfo)
        rates = self._ask(device, library.nvmlDeviceGetUtilizationRates)
        processes = self._ask(device, library.nvmlDeviceGetComputeRunningProcesses) or ()
        return Occupancy(
            device=replace(device, mem_total_mib=mib(memory.total)) if memory else device,
            mem_used_mib=memory and mib(memory.used),
            util_pct=rates and float(rates.gpu),
            occupants=tuple(
                Occupant(pid=process.pid, mem_mib=None if process.usedGpuMemory is None else mib(process.usedGpuMemory))
                for process in processes
            ),
        )

    def _clocks(self, device: Device) -> Clocks:
        """Return the clocks of one card now."""
        library = self._nvml.library
        reasons = self._ask(device, library.nvmlDeviceGetCurrentClocksThrottleReasons)
        return Clocks(
            device=device,
            sm_mhz=self._ask(device, library.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM),
            sm_max_mhz=self._ask(device, library.nvmlDeviceGetMaxClockInfo, pynvml.NVML_CLOCK_SM),
            slowed_by=None if reasons is None else tuple(text for bit, text in self.SLOWED_BY.items() if reasons & bit),
        )

    def _ask(self, device: Device, call: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a function of NVML says about a card; None where the card does not support it."""
        return self._nvml.ask(device.name, call, self._handles[device.name], *arguments)


TOLERATED_SHARE = 0.1
"""The share of a card's memory that others, such as a desktop, may use when a study opens. The card is still free."""

SLACK_MIB = 256.0
"""The MiB that a free card may use beyond its use when the study opened. Any trainer left behind uses more."""

IDLE_UTIL_PCT = 5.0
"""The highest utilisation of a free card. A busier card works for somebody, even if a container hides the process."""

LEAK_MIB = 1024.0
"""The MiB by which a session's memory may grow after its first run without counting as a leak.

Some growth is normal: allocators round sizes up, and the driver loads kernels late.
"""


class Obstacle(NamedTuple):
    """Why a card is not free."""

    rule: str
    """The name of the rule that the card breaks: one of `RULES`, or `own process`."""
    text: str


RULES = ("foreign process", "memory", "utilisation")
"""The rules for a free card: see `obstacles`. The first one that is broken is the most useful to a person."""


def obstacles(now: Sequence[Occupancy], occupancy_at_start: Sequence[Occupancy]) -> list[Obstacle]:
    """Return why the cards are not free, compared with the same cards when the study opened, in the order of `RULES`.

    A card is free when three things hold:
    1. No process computes on it, except processes that were there at the opening and use little memory.
    2. Its memory in use is at most `SLACK_MIB` more than at the opening. If that was more than `TOLERATED_SHARE` of the
       card, this share counts instead.
    3. Its utilisation is at most `IDLE_UTIL_PCT`.

    Without cards the list is empty.
    """
    reasons: list[Obstacle] = []
    for card, before in zip(now, occupancy_at_start, strict=True):
        name, old_pids = card.device.label, {user.pid for user in before.occupants}
        tolerated_mib = TOLERATED_SHARE * (card.device.mem_total_mib or math.inf)
        foreign = [user for user in card.occupants if user.pid not in old_pids or (user.mem_mib or 0.0) > tolerated_mib]
        if foreign:  # 1
            reasons.append(Obstacle("foreign process", f"{name} is used by {', '.join(map(occupant_text, foreign))}"))
        most_mib = min(before.mem_used_mib or 0.0, tolerated_mib) + SLACK_MIB
        can_compare = None not in {before.mem_used_mib, card.device.mem_total_mib}
        if can_compare and card.mem_used_mib is not None and card.mem_used_mib > most_mib:  # 2
            used = f"has {card.mem_used_mib:,.0f} MiB in use; a free card has at most {most_mib:,.0f} MiB in use"
            reasons.append(Obstacle("memory", f"{name} {used}"))
        if (card.util_pct or 0.0) > IDLE_UTIL_PCT:  # 3
            reasons.append(Obstacle("utilisation", f"{name} is busy ({card.util_pct:.0f} %)"))
    return sorted(reasons, key=lambda obstacle: RULES.index(obstacle.rule))


def has_leaked(now: Sequence[Occupancy], before: Sequence[Occupancy]) -> bool:
    """Return whether a session leaks: the memory use of a card has grown by more than `LEAK_MIB` since `before`."""
    return any(
        card.mem_used_mib is not None
        and earlier.mem_used_mib is not None
        and card.mem_used_mib > earlier.mem_used_mib + LEAK_MIB
        for card, earlier in zip(now, before, strict=False)  # a session without cards has none before
    )


def wait_until_idle(
    read: Callable[[], Sequence[Occupancy]],
    occupancy_at_start: Sequence[Occupancy],
    *,
    limit_s: float,
    clock: Clock,
    sleep: Callable[[float], None],
    interrupted: Callable[[], bool],
    still_running: Callable[[], str | None] = lambda: None,
) -> Failure | None:
    """Wait until the devices are free for a probe, and return None; after `limit_s`, return why they are not free.

    CPU ranks are free as soon as no process of an earlier probe is alive. When a card is lost, the failure is returned
    at once, because it does not help to wait.

    Args:
        read: Returns how the cards are used now; empty for CPU ranks.
        occupancy_at_start: How they were used when the study opened.
        limit_s: The longest wait in seconds.
        clock: Times the wait.
        sleep: Waits some seconds of that clock.
        interrupted: Returns whether the user wants to stop.
        still_running: Names the processes of an earlier probe that are still alive; None without any.
    """
    end_s = clock.now() + limit_s
    while True:
        reasons: list[Obstacle] = []
        if processes := still_running():
            reasons.append(Obstacle("own process", f"{processes} of an earlier probe cannot be killed"))
        try:
            reasons += obstacles(read(), occupancy_at_start)
        except DeviceError as error:
            failure = unreadable(str(error))
            if isinstance(error, DeviceLostError):  # it does not help to wait
                return failure
        else:
            if not reasons:
                return None
            detail = "; ".join(obstacle.text for obstacle in reasons)
            failure = Failure(kind=FailureKind.GPU_BUSY, rule=reasons[0].rule, detail=detail)
        if interrupted():
            return STOPPED
        if clock.now() >= end_s:
            return replace(failure, detail=f"{failure.detail}; waited {limit_s:g} s")
        sleep(0.1)  # seconds


def occupant_text(occupant: Occupant) -> str:
    """Return the pid of a process on a card and the memory that it uses, as text."""
    memory = "unknown memory" if occupant.mem_mib is None else f"{occupant.mem_mib:,.0f} MiB"
    return f"pid {occupant.pid} ({memory})"
