"""The state of the GPUs outside a probe: which processes use them, and what lowers their clocks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pynvml

from tuner.devices.nvml import Nvml
from tuner.probe.plan import Device
from tuner.units import mib

_SLOWED_BY = {
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
    mem_used_mib: float | None = None
    util_pct: float | None = None
    """The utilisation over the driver's last interval, which is up to a second long."""
    occupants: tuple[Occupant, ...] = ()
    """The processes that compute on the card. Empty inside a container that hides other processes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Clocks:
    """How fast a card's multiprocessors run at one moment."""

    device: Device
    sm_mhz: int | None = None
    sm_max_mhz: int | None = None
    slowed_by: tuple[str, ...] | None = None
    """What lowers the clocks, other than idleness; None when the driver does not report it."""


class Cards:
    """Asks the driver about the GPUs among `devices`. Without a GPU, the driver is never asked.

    Raises DeviceError when a card does not answer.
    """

    def __init__(self, devices: Sequence[Device], connect: Callable[[], Nvml] = Nvml) -> None:
        self._devices = [device for device in devices if device.uuid is not None]
        if self._devices:
            self._nvml = connect()
            self._handles = {device.name: self._nvml.handle(device.uuid or "") for device in self._devices}

    def occupancy(self) -> tuple[Occupancy, ...]:
        """Read how much of each card is in use, and by which processes."""
        return tuple(self._occupancy(device) for device in self._devices)

    def clocks(self) -> tuple[Clocks, ...]:
        """Read each card's clocks."""
        return tuple(self._clocks(device) for device in self._devices)

    def _occupancy(self, device: Device) -> Occupancy:
        library = self._nvml.library
        memory = self._ask(device, library.nvmlDeviceGetMemoryInfo)
        rates = self._ask(device, library.nvmlDeviceGetUtilizationRates)
        processes = self._ask(device, library.nvmlDeviceGetComputeRunningProcesses) or ()
        return Occupancy(
            device=device,
            mem_used_mib=memory and mib(memory.used),
            util_pct=rates and float(rates.gpu),
            occupants=tuple(
                Occupant(pid=process.pid, mem_mib=None if process.usedGpuMemory is None else mib(process.usedGpuMemory))
                for process in processes
            ),
        )

    def _clocks(self, device: Device) -> Clocks:
        library = self._nvml.library
        reasons = self._ask(device, library.nvmlDeviceGetCurrentClocksThrottleReasons)
        return Clocks(
            device=device,
            sm_mhz=self._ask(device, library.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM),
            sm_max_mhz=self._ask(device, library.nvmlDeviceGetMaxClockInfo, pynvml.NVML_CLOCK_SM),
            slowed_by=None if reasons is None else tuple(text for bit, text in _SLOWED_BY.items() if reasons & bit),
        )

    def _ask(self, device: Device, call: Callable[..., Any], *arguments: Any) -> Any:
        return self._nvml.ask(device.name, call, self._handles[device.name], *arguments)
