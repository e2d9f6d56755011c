"""What a GPU's units did between two moments: NVML's GPU performance monitoring (GPM), from Hopper on.

Calls NVML as it is: its errors are translated by the caller, `tuner.devices.nvml`.
"""

import math
import weakref
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pynvml


@dataclass(frozen=True, kw_only=True, slots=True)
class GpmReading:
    """Means since the reading before, in percent of what the card can do."""

    sm_pct: float | None = None
    """Multiprocessors that had work."""
    occupancy_pct: float | None = None
    """Warps in flight."""
    tensor_pct: float | None = None
    """Tensor cores, any number format."""
    dram_pct: float | None = None
    """Memory bandwidth."""


_METRICS = {
    "sm_pct": pynvml.NVML_GPM_METRIC_SM_UTIL,
    "occupancy_pct": pynvml.NVML_GPM_METRIC_SM_OCCUPANCY,
    "tensor_pct": pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
    "dram_pct": pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
}


def has_gpm(handle: Any, nvml: ModuleType = pynvml) -> bool:
    """Tell whether this card has GPM. Raises NVMLError where the driver does not know it either."""
    return bool(nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice)


class GpmReader:
    """Reads one GPU; a reading costs about 0.4 ms on an H200. Its two samples live as long as the reader."""

    def __init__(self, handle: Any, nvml: ModuleType = pynvml) -> None:
        self._handle = handle
        self._nvml = nvml
        self._samples: list[Any] = []
        freed = weakref.finalize(self, _free, nvml, self._samples)
        freed.atexit = False  # the end of the process frees them, and a driver that hangs is not to keep it
        for _ in range(2):
            self._samples.append(nvml.nvmlGpmSampleAlloc())
        self._request = nvml.c_nvmlGpmMetricsGet_t()
        self._request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        self._request.numMetrics = len(_METRICS)
        for slot, metric in zip(self._request.metrics, _METRICS.values(), strict=False):
            slot.metricId = metric
        self._started = False

    def restart(self) -> None:
        """Forget the last reading, so that the next one begins a new interval."""
        self._started = False

    def read(self) -> GpmReading | None:
        """Give the means since the last call; None from the first one, which only begins the interval."""
        older, newer = self._samples
        self._nvml.nvmlGpmSampleGet(self._handle, newer)
        self._samples.reverse()  # now that it is taken: one that fails leaves the interval as it was
        if not self._started:
            self._started = True
            return None
        self._request.sample1, self._request.sample2 = older, newer
        self._nvml.nvmlGpmMetricsGet(self._request)
        return GpmReading(**dict(zip(_METRICS, map(_value, self._request.metrics), strict=False)))


def _value(slot: Any) -> float | None:
    known = slot.nvmlReturn == pynvml.NVML_SUCCESS and math.isfinite(slot.value)
    return slot.value if known else None


def _free(nvml: ModuleType, samples: list[Any]) -> None:
    while samples:
        nvml.nvmlGpmSampleFree(samples.pop())
