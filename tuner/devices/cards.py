"""The GPUs from outside a probe: who holds them, and what holds their clocks back."""

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
"""NVML's reasons for clocks below the highest (nvml.h, nvmlClocksThrottleReasons); idleness is none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Occupant:
    """A process that computes on a card."""

    pid: int
    """As the driver numbers it, which may be another number than inside a container."""
    mem_mib: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Occupancy:
    """Who holds a card at one moment."""

    device: Device
    mem_used_mib: float | None = None
    util_pct: float | None = None
    """Of the driver's last interval, up to a second long."""
    occupants: tuple[Occupant, ...] = ()
    """None are seen inside containers that hide other processes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Clocks:
    """How fast a card's multiprocessors run at one moment."""

    device: Device
    sm_mhz: int | None = None
    sm_max_mhz: int | None = None
    slowed_by: tuple[str, ...] | None = None
    """What holds the clocks back, idleness aside."""


class Cards:
    """The GPUs among `devices`; without any, nothing is asked. Raises DeviceError when one does not answer."""

    def __init__(self, devices: Sequence[Device], connect: Callable[[], Nvml] = Nvml) -> None:
        self._devices = [device for device in devices if device.uuid is not None]
        if self._devices:
            self._nvml = connect()
            self._handles = {device.name: self._nvml.handle(device.uuid or "") for device in self._devices}

    def occupancy(self) -> tuple[Occupancy, ...]:
        """Read who holds each card."""
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
