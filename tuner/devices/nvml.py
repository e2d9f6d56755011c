"""Reads NVIDIA GPUs through NVML, NVIDIA's management library, and its profiling metrics (GPM).

GPM gives means over an interval between two of NVML's own samples, such as how busy the multiprocessors (SM) were.
"""

import math
import weakref
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, ClassVar, TypeVar

import pynvml

from tuner.devices.card_driver import Driver
from tuner.probe import Device, DeviceSample, mib


def has_gpm(handle: Any, nvml: ModuleType) -> bool:
    """Return whether the card with this handle has GPM. Raises NVMLError when the driver itself has no GPM."""
    return bool(nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice)


class GpmReader:
    """Measures one GPU. A measurement takes about 0.4 ms on an H200.

    The reader allocates two NVML samples and frees them when the reader itself is freed.
    """

    METRICS: ClassVar = {
        "sm_pct": pynvml.NVML_GPM_METRIC_SM_UTIL,  # how many of the multiprocessors had work
        "occupancy_pct": pynvml.NVML_GPM_METRIC_SM_OCCUPANCY,  # how many warps were in flight
        "tensor_pct": pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,  # how busy the tensor cores were, for all number formats
        "dram_pct": pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL,  # how much of the memory bandwidth was used
    }
    """Field of `DeviceSample` → GPM's metric, in percent of the card's maximum."""

    def __init__(self, handle: Any, nvml: ModuleType) -> None:
        """Prepare to measure the card with this handle; `nvml` is NVML's library."""
        self._handle, self._nvml = handle, nvml
        self._samples: list[Any] = []
        """NVML's samples at the start and at the end of an interval."""
        finalizer = weakref.finalize(self, _free, nvml, self._samples)
        finalizer.atexit = False  # the process frees them as it ends, and must not wait for a driver that hangs
        for _ in range(2):
            self._samples.append(nvml.nvmlGpmSampleAlloc())
        self._request = nvml.c_nvmlGpmMetricsGet_t()
        self._request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        self._request.numMetrics = len(self.METRICS)
        for slot, metric in zip(self._request.metrics, self.METRICS.values(), strict=False):  # NVML has more slots
            slot.metricId = metric
        self._started = False
        """Whether an interval has begun."""

    def restart(self) -> None:
        """Forget the last measurement, so that the next one begins a new interval."""
        self._started = False

    def read(self) -> dict[str, float | None]:
        """Return field of `DeviceSample` → its mean since the last call. The first call only begins an interval."""
        older, newer = self._samples
        self._nvml.nvmlGpmSampleGet(self._handle, newer)
        self._samples.reverse()  # only after the sample succeeded: a failed sample leaves the interval unchanged
        if not self._started:
            self._started = True
            return {}
        self._request.sample1, self._request.sample2 = older, newer
        self._nvml.nvmlGpmMetricsGet(self._request)
        return {
            field: slot.value if slot.nvmlReturn == pynvml.NVML_SUCCESS and math.isfinite(slot.value) else None
            for field, slot in zip(self.METRICS, self._request.metrics, strict=False)
        }


def _free(nvml: ModuleType, samples: list[Any]) -> None:
    """Free NVML's samples."""
    while samples:
        nvml.nvmlGpmSampleFree(samples.pop())


_Answer = TypeVar("_Answer")


class Nvml(Driver):
    """An initialised NVML."""

    MAKER, LIBRARY, LOOK = "NVIDIA", "NVML", "see `nvidia-smi` and the kernel's log"
    NO_DRIVER: ClassVar = {
        pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_GPU_NOT_FOUND,
    }
    NOT_OFFERED: ClassVar = {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_NO_DATA,
    }
    LOST: ClassVar = {pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED}

    def __init__(self, library: ModuleType = pynvml, *, answer_s: float = 5.0, open_s: float = 120.0) -> None:
        super().__init__(library, library.NVMLError, library.nvmlInit, answer_s=answer_s, open_s=open_s)

    def _code(self, error: Any) -> int | None:
        return error.value

    def uuids(self) -> list[str]:
        """Return the UUIDs of the cards in NVML's order, which is the order on the PCI bus."""
        count = self.ask("the driver", self.library.nvmlDeviceGetCount) or 0
        uuids: list[str] = []
        for index in range(count):
            card = self.ask(f"card {index}", self.library.nvmlDeviceGetHandleByIndex, index, limit_s=self._open_s)
            uuids.append(str(self.ask(f"card {index}", self.library.nvmlDeviceGetUUID, card)))
        return uuids

    def handle(self, uuid: str) -> Any:
        """Return NVML's handle of a card."""
        return self.ask(f"card {uuid}", self.library.nvmlDeviceGetHandleByUUID, uuid, limit_s=self._open_s)

    def versions(self) -> dict[str, str]:
        """Return the version of the driver and the newest CUDA version that it supports, as far as it reports them."""
        driver = self.ask("the driver", self.library.nvmlSystemGetDriverVersion)
        cuda = self.ask("the driver", self.library.nvmlSystemGetCudaDriverVersion_v2)
        return {
            **({"driver": str(driver)} if driver else {}),
            **({"cuda": f"{cuda // 1000}.{cuda % 1000 // 10}"} if cuda else {}),  # 12040 is 12.4
        }


class NvmlSource:
    """Measures utilisation, memory, power and energy of whole cards, and GPM every `GPM_INTERVAL_S` where there is GPM.

    The cards are named `cuda:0`, `cuda:1`, … in the given order. A trainer that sees only these cards uses the same
    names. NVML's utilisation is the share of the driver's last interval in which any kernel ran.
    """

    GPM_INTERVAL_S = 0.2
    """The seconds over which GPM takes its means."""

    label = "nvml"

    def __init__(self, nvml: Nvml, uuids: Sequence[str], memory_mib: float | None = None) -> None:
        """Prepare to read cards, in rank order. `memory_mib`: what each has for the trainer; None for all of it."""
        self._cards = [_Card(nvml, f"cuda:{position}", uuid, memory_mib) for position, uuid in enumerate(uuids)]
        self.devices = tuple(card.device for card in self._cards)
        """The cards, in rank order."""
        self._gpm_interval: int | None = None
        """The number of the interval in which GPM was read last."""

    def attach(self, pid: int) -> None:
        """Begin a new GPM interval, so that no mean includes time before this probe.

        `pid` is not used, because the source measures whole cards.
        """
        self._gpm_interval = None
        for card in self._cards:
            if card.gpm is not None:
                card.gpm.restart()

    def sample(self, t_s: float) -> list[DeviceSample]:
        """Return a sample of every card, taken now. Raises the errors that the protocol `DeviceSource` names."""
        interval = int(t_s // self.GPM_INTERVAL_S)
        is_new_interval = interval != self._gpm_interval
        self._gpm_interval = interval
        return [card.sample(t_s, position, reads_gpm=is_new_interval) for position, card in enumerate(self._cards)]


class _Card:
    """One GPU and its GPM reader, if it has GPM."""

    def __init__(self, nvml: Nvml, name: str, uuid: str, memory_mib: float | None) -> None:
        """Ask the driver about a card.

        `memory_mib`: the memory that the card has for the trainer; None for all of it.
        """
        self._nvml, self._name, self._handle = nvml, name, nvml.handle(uuid)
        library = nvml.library
        memory = self._ask(library.nvmlDeviceGetMemoryInfo)
        self.device = Device(
            name=name,
            model=str(self._ask(library.nvmlDeviceGetName) or "unknown GPU"),
            uuid=uuid,
            mem_total_mib=memory_mib or (memory and mib(memory.total)),
        )
        self.gpm = self._ask(GpmReader, library) if self._ask(has_gpm, library) else None  # only newer cards have it

    def sample(self, t_s: float, position: int, *, reads_gpm: bool) -> DeviceSample:
        """Return a sample of the card, taken now; with the means of GPM where it `reads_gpm` and the card has GPM."""
        library = self._nvml.library
        rates = self._ask(library.nvmlDeviceGetUtilizationRates)
        memory = self._ask(library.nvmlDeviceGetMemoryInfo)
        power_mw = self._ask(library.nvmlDeviceGetPowerUsage)
        energy_mj = self._ask(library.nvmlDeviceGetTotalEnergyConsumption)
        gpm = self._nvml.ask(self._name, self.gpm.read) if self.gpm and reads_gpm else None
        return DeviceSample(
            t_s=t_s,
            device=position,
            util_pct=rates and float(rates.gpu),
            mem_used_mib=memory and mib(memory.used),
            mem_total_mib=self.device.mem_total_mib,
            power_w=None if power_mw is None else power_mw / 1000,
            energy_j=None if energy_mj is None else energy_mj / 1000,
            **(gpm or {}),
        )

    def _ask(self, call: Callable[..., _Answer], *arguments: Any) -> _Answer | None:
        """Return what a function of NVML says about this card; None where it does not support the call."""
        return self._nvml.ask(self._name, call, self._handle, *arguments)
