"""Measures how busy the parts of a GPU are, with NVML's GPU performance monitoring (GPM; Hopper or newer).

This file calls NVML directly. The caller, `tuner.devices.nvml`, translates NVML's errors.
"""

import math
import weakref
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pynvml


@dataclass(frozen=True, kw_only=True, slots=True)
class GpmMeans:
    """Means since the previous measurement, in percent of the card's maximum. An unknown mean is None."""

    sm_pct: float | None = None
    """How many of the multiprocessors had work."""
    occupancy_pct: float | None = None
    """How many warps were in flight."""
    tensor_pct: float | None = None
    """How busy the tensor cores were, for all number formats together."""
    dram_pct: float | None = None
    """How much of the memory bandwidth was used."""


_METRICS = {
    "sm_pct": pynvml.NVML_GPM_METRIC_SM_UTIL,
    "occupancy_pct": pynvml.NVML_GPM_METRIC_SM_OCCUPANCY,
    "tensor_pct": pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
    "dram_pct": pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
}


def has_gpm(handle: Any, nvml: ModuleType = pynvml) -> bool:
    """Return whether this card has GPM. Raises NVMLError when the driver itself has no GPM."""
    return bool(nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice)


class GpmReader:
    """Measures one GPU. A measurement takes about 0.4 ms on an H200.

    The reader allocates two NVML samples and frees them when the reader itself is freed.
    """

    def __init__(self, handle: Any, nvml: ModuleType = pynvml) -> None:
        self._handle = handle
        self._nvml = nvml
        self._samples: list[Any] = []
        freed = weakref.finalize(self, _free, nvml, self._samples)
        freed.atexit = False  # the process frees them as it ends, and must not wait for a driver that hangs
        for _ in range(2):
            self._samples.append(nvml.nvmlGpmSampleAlloc())
        self._request = nvml.c_nvmlGpmMetricsGet_t()
        self._request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        self._request.numMetrics = len(_METRICS)
        for slot, metric in zip(self._request.metrics, _METRICS.values(), strict=False):
            slot.metricId = metric
        self._started = False

    def restart(self) -> None:
        """Forget the last measurement, so that the next one begins a new interval."""
        self._started = False

    def read(self) -> GpmMeans | None:
        """Return the means since the last call. The first call only begins the interval and returns None."""
        older, newer = self._samples
        self._nvml.nvmlGpmSampleGet(self._handle, newer)
        self._samples.reverse()  # only after the sample succeeded: a failed sample leaves the interval unchanged
        if not self._started:
            self._started = True
            return None
        self._request.sample1, self._request.sample2 = older, newer
        self._nvml.nvmlGpmMetricsGet(self._request)
        return GpmMeans(**dict(zip(_METRICS, map(_value, self._request.metrics), strict=False)))


def _value(slot: Any) -> float | None:
    known = slot.nvmlReturn == pynvml.NVML_SUCCESS and math.isfinite(slot.value)
    return slot.value if known else None


def _free(nvml: ModuleType, samples: list[Any]) -> None:
    while samples:
        nvml.nvmlGpmSampleFree(samples.pop())
