"""Measures GPUs through NVML, the driver's measuring library, and turns every NVML error into a DeviceError."""

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, TypeVar

import pynvml

from tuner.devices.calls import Calls
from tuner.devices.gpm import GpmMeans, GpmReader, has_gpm
from tuner.errors import DeviceError, DeviceLostError
from tuner.probe.plan import Device
from tuner.probe.result import DeviceSample
from tuner.units import mib

_Answer = TypeVar("_Answer")

_NO_DRIVER = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_GPU_NOT_FOUND,
}
_NOT_OFFERED = {
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    pynvml.NVML_ERROR_NO_PERMISSION,
    pynvml.NVML_ERROR_NO_DATA,
}
_LOOK = "see `nvidia-smi` and the kernel's log"
_LOST = {pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED}
_NO_MEANS = GpmMeans()

ANSWER_S = 5.0
"""The seconds after which a call counts as hanging. Calls normally take microseconds.

A call hangs, for example, when its card has fallen off the bus.
"""
OPEN_S = 120.0
"""The seconds after which a call that may wake up the cards counts as hanging.

Waking up takes seconds per card when the driver does not stay loaded.
"""


class NoDriverError(DeviceError):
    """This machine has no NVIDIA driver, or the driver has no card."""


class Nvml:
    """An initialised NVML. Raises NoDriverError without a driver, and DeviceError when the driver does not start."""

    def __init__(self, library: ModuleType = pynvml, *, answer_s: float = ANSWER_S, open_s: float = OPEN_S) -> None:
        """`answer_s` and `open_s` are the most seconds that a call may take; see `ANSWER_S` and `OPEN_S`."""
        self.library = library
        self._answer_s = answer_s
        self._open_s = open_s
        self._calls = Calls("nvml")
        try:
            self._calls.make("", open_s, library.nvmlInit)
        except TimeoutError as error:
            raise DeviceError(f"the NVIDIA driver hangs as it starts; {_LOOK}") from error
        except library.NVMLError as error:
            if error.value in _NO_DRIVER:
                raise NoDriverError(f"there is no NVIDIA driver on this machine (NVML: {error})") from error
            raise DeviceError(f"the NVIDIA driver does not start (NVML: {error}); does `nvidia-smi` work?") from error

    def ask(self, subject: str, call: Callable[..., _Answer], *arguments: Any) -> _Answer | None:
        """Return what `call` returns, or None when the card or the driver does not support the call.

        Raises DeviceLostError when the card is lost, and DeviceError for every other error. The message names
        `subject`, or the subject of an earlier call that still hangs.
        """
        return self._ask(self._answer_s, subject, call, *arguments)

    def _ask(self, limit_s: float, subject: str, call: Callable[..., _Answer], *arguments: Any) -> _Answer | None:
        what = f"{subject} does not answer {call.__name__}"
        try:
            return self._calls.make(what, limit_s, call, *arguments)
        except TimeoutError as error:
            raise DeviceError(f"{error}: the call hangs in the driver; {_LOOK}") from error
        except self.library.NVMLError as error:
            if error.value in _NOT_OFFERED:
                return None
            kind = DeviceLostError if error.value in _LOST else DeviceError
            raise kind(f"{what} (NVML: {error}); {_LOOK}") from error

    def uuids(self) -> list[str]:
        """Return the UUIDs of the cards in NVML's order, which is the order on the PCI bus."""
        count = self.ask("the driver", self.library.nvmlDeviceGetCount) or 0
        by_index = self.library.nvmlDeviceGetHandleByIndex
        handles = [self._ask(self._open_s, f"card {index}", by_index, index) for index in range(count)]
        return [
            str(self.ask(f"card {index}", self.library.nvmlDeviceGetUUID, handle))
            for index, handle in enumerate(handles)
        ]

    def handle(self, uuid: str) -> Any:
        """Return NVML's handle of a card."""
        return self._ask(self._open_s, f"card {uuid}", self.library.nvmlDeviceGetHandleByUUID, uuid)

    def versions(self) -> dict[str, str]:
        """Return the version of the driver and the newest CUDA version that it supports."""
        driver = self.ask("the driver", self.library.nvmlSystemGetDriverVersion)
        cuda = self.ask("the driver", self.library.nvmlSystemGetCudaDriverVersion_v2)
        return {
            **({"driver": str(driver)} if driver else {}),
            **({"cuda": f"{cuda // 1000}.{cuda % 1000 // 10}"} if cuda else {}),
        }


class NvmlSource:
    """Measures utilisation, memory and power of whole cards, and GPM every `gpm_interval_s` on cards that have GPM.

    The cards are named `cuda:0`, `cuda:1`, … in the given order. A trainer that sees only these cards uses the same
    names. NVML's utilisation is the share of the driver's last interval in which any kernel ran.
    """

    label = "nvml"

    def __init__(self, nvml: Nvml, uuids: Sequence[str], gpm_interval_s: float = 0.2) -> None:
        self._cards = [_Card(nvml, f"cuda:{position}", uuid) for position, uuid in enumerate(uuids)]
        self._gpm_interval_s = gpm_interval_s
        self._gpm_interval: int | None = None

    @property
    def devices(self) -> tuple[Device, ...]:
        """Return the cards, in rank order."""
        return tuple(card.device for card in self._cards)

    def attach(self, pid: int) -> None:
        """Begin a new GPM interval, so that no mean includes time before this probe.

        `pid` is not used, because the source measures whole cards.
        """
        self._gpm_interval = None
        for card in self._cards:
            card.restart()

    def sample(self, t_s: float) -> list[DeviceSample]:
        """Measure every card once. Raises the errors that the protocol `DeviceSource` names."""
        interval = int(t_s // self._gpm_interval_s)
        gpm_is_due, self._gpm_interval = interval != self._gpm_interval, interval
        return [card.sample(t_s, position, gpm_is_due) for position, card in enumerate(self._cards)]


class _Card:
    """One GPU and its GPM reader, if it has GPM."""

    def __init__(self, nvml: Nvml, name: str, uuid: str) -> None:
        self._nvml, self._name, self._handle = nvml, name, nvml.handle(uuid)
        library = nvml.library
        memory = self._ask(library.nvmlDeviceGetMemoryInfo)
        self.device = Device(
            name=name,
            model=str(self._ask(library.nvmlDeviceGetName) or "unknown GPU"),
            uuid=uuid,
            mem_total_mib=memory and mib(memory.total),
        )
        self._gpm = self._ask(GpmReader, library) if self._ask(has_gpm, library) else None

    def restart(self) -> None:
        if self._gpm is not None:
            self._gpm.restart()

    def sample(self, t_s: float, position: int, gpm_is_due: bool) -> DeviceSample:
        library = self._nvml.library
        rates = self._ask(library.nvmlDeviceGetUtilizationRates)
        memory = self._ask(library.nvmlDeviceGetMemoryInfo)
        power_mw = self._ask(library.nvmlDeviceGetPowerUsage)
        gpm = self._nvml.ask(self._name, self._gpm.read) if self._gpm and gpm_is_due else None
        gpm = gpm or _NO_MEANS
        return DeviceSample(
            t_s=t_s,
            device=position,
            util_pct=rates and float(rates.gpu),
            sm_pct=gpm.sm_pct,
            occupancy_pct=gpm.occupancy_pct,
            tensor_pct=gpm.tensor_pct,
            dram_pct=gpm.dram_pct,
            mem_used_mib=memory and mib(memory.used),
            mem_total_mib=self.device.mem_total_mib,
            power_w=None if power_mw is None else power_mw / 1000,
        )

    def _ask(self, call: Callable[..., _Answer], *arguments: Any) -> _Answer | None:
        return self._nvml.ask(self._name, call, self._handle, *arguments)
