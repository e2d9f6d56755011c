"""A scripted NVML with the calls that the tuner uses, to stand in for the `pynvml` module."""

# ruff: noqa: D102, N802, N815  names and meaning of these calls are NVML's own

import itertools
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import wraps
from threading import Event
from types import ModuleType, SimpleNamespace
from typing import Any

from tuner.units import BYTES_PER_MIB

_INVALID_ARGUMENT, _NOT_SUPPORTED, _NOT_FOUND, _LOST = 2, 3, 6, 15
_NVLINK = 2
_MAX_SM_MHZ = 1980
_P2P_OK, _P2P_CHIPSET_NOT_SUPPORTED = 0, 1


@dataclass(eq=False, kw_only=True)
class FakeGpu:
    """One card. Tests change its fields between calls to script NVML's next answers."""

    uuid: str
    name: str = "NVIDIA Fake"
    util_pct: int = 0
    mem_used_mib: int = 615
    mem_total_mib: int = 24_564
    power_w: float = 80.0
    processes: dict[int, int | None] = field(default_factory=dict)
    """The processes that compute on the card: pid → MiB, or None when the driver does not report the memory."""
    sm_mhz: int = _MAX_SM_MHZ
    slowed_by: int = 0
    """The bits of NVML's reasons for lower clocks."""
    gpm_pct: dict[int, float] | None = None
    """The value of each GPM metric; None for a card without GPM."""
    errors: dict[str, int] = field(default_factory=dict)
    """NVML call → the error code with which it fails on this card."""
    hangs: dict[str, Event] = field(default_factory=dict)
    """NVML call → the event that it waits for on this card before it answers."""
    lost: bool = False
    """Whether every call on this card fails because the card is lost."""


class FakeNvmlError(Exception):
    """A call that failed with the NVML error code `value`."""

    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


class FakeGpmMetricsGet:
    """A request for GPM metrics, into which the answer is written."""

    def __init__(self) -> None:
        self.version = self.numMetrics = 0
        self.sample1: Any = None
        self.sample2: Any = None
        self.metrics = [SimpleNamespace(metricId=0, nvmlReturn=0, value=0.0) for _ in range(8)]


def _about_card(call: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(call)
    def answer(self: "FakeNvml", gpu: FakeGpu, *arguments: Any) -> Any:
        if event := gpu.hangs.get(call.__name__):
            event.wait()
        if gpu.lost:
            raise FakeNvmlError(_LOST)
        if call.__name__ in gpu.errors:
            raise FakeNvmlError(gpu.errors[call.__name__])
        return call(self, gpu, *arguments)

    return answer


class FakeNvml(ModuleType):
    """A fake NVML with the cards `gpus`, in PCI order.

    `without_p2p` and `nvlinks` contain pairs of positions, the smaller position first. If `init_hangs` is given,
    `nvmlInit` returns only after that event is set.
    """

    NVMLError = FakeNvmlError
    c_nvmlGpmMetricsGet_t = FakeGpmMetricsGet

    def __init__(
        self,
        *gpus: FakeGpu,
        init_error: int | None = None,
        init_hangs: Event | None = None,
        without_p2p: Collection[tuple[int, int]] = (),
        nvlinks: Collection[tuple[int, int]] = (),
    ) -> None:
        super().__init__("pynvml")
        self._gpus = gpus
        self._init_error = init_error
        self._init_hangs = init_hangs
        self._without_p2p = without_p2p
        self._nvlinks = nvlinks
        self._moments = itertools.count()
        self.gpm_samples: list[SimpleNamespace] = []
        """The GPM samples that are allocated and not freed yet."""

    def nvmlInit(self) -> None:
        if self._init_hangs is not None:
            self._init_hangs.wait()
        if self._init_error is not None:
            raise FakeNvmlError(self._init_error)

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.1"

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        return 13_010

    def nvmlDeviceGetCount(self) -> int:
        return len(self._gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:
        return self._gpus[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> FakeGpu:
        for gpu in self._gpus:
            if gpu.uuid == uuid:
                return gpu
        raise FakeNvmlError(_NOT_FOUND)

    @_about_card
    def nvmlDeviceGetUUID(self, gpu: FakeGpu) -> str:
        return gpu.uuid

    @_about_card
    def nvmlDeviceGetName(self, gpu: FakeGpu) -> str:
        return gpu.name

    @_about_card
    def nvmlDeviceGetUtilizationRates(self, gpu: FakeGpu) -> SimpleNamespace:
        return SimpleNamespace(gpu=gpu.util_pct, memory=0)

    @_about_card
    def nvmlDeviceGetMemoryInfo(self, gpu: FakeGpu) -> SimpleNamespace:
        return SimpleNamespace(used=gpu.mem_used_mib * BYTES_PER_MIB, total=gpu.mem_total_mib * BYTES_PER_MIB)

    @_about_card
    def nvmlDeviceGetPowerUsage(self, gpu: FakeGpu) -> int:
        return round(gpu.power_w * 1000)

    @_about_card
    def nvmlDeviceGetComputeRunningProcesses(self, gpu: FakeGpu) -> list[SimpleNamespace]:
        return [
            SimpleNamespace(pid=pid, usedGpuMemory=None if held_mib is None else held_mib * BYTES_PER_MIB)
            for pid, held_mib in gpu.processes.items()
        ]

    @_about_card
    def nvmlDeviceGetClockInfo(self, gpu: FakeGpu, kind: int) -> int:
        return gpu.sm_mhz

    @_about_card
    def nvmlDeviceGetMaxClockInfo(self, gpu: FakeGpu, kind: int) -> int:
        return _MAX_SM_MHZ

    @_about_card
    def nvmlDeviceGetCurrentClocksThrottleReasons(self, gpu: FakeGpu) -> int:
        return gpu.slowed_by

    @_about_card
    def nvmlDeviceGetP2PStatus(self, gpu: FakeGpu, other: FakeGpu, capability: int) -> int:
        pair = tuple(sorted((self._gpus.index(gpu), self._gpus.index(other))))
        able = pair in self._nvlinks if capability == _NVLINK else pair not in self._without_p2p
        return _P2P_OK if able else _P2P_CHIPSET_NOT_SUPPORTED

    @_about_card
    def nvmlGpmQueryDeviceSupport(self, gpu: FakeGpu) -> SimpleNamespace:
        return SimpleNamespace(isSupportedDevice=int(gpu.gpm_pct is not None))

    def nvmlGpmSampleAlloc(self) -> SimpleNamespace:
        sample = SimpleNamespace(moment=None, pct={})
        self.gpm_samples.append(sample)
        return sample

    def nvmlGpmSampleFree(self, sample: SimpleNamespace) -> None:
        self.gpm_samples[:] = [other for other in self.gpm_samples if other is not sample]

    @_about_card
    def nvmlGpmSampleGet(self, gpu: FakeGpu, sample: SimpleNamespace) -> SimpleNamespace:
        sample.moment, sample.pct = next(self._moments), dict(gpu.gpm_pct or {})
        return sample

    def nvmlGpmMetricsGet(self, request: FakeGpmMetricsGet) -> FakeGpmMetricsGet:
        """Answer with the values of the later sample. Both samples must be taken, and the first one earlier."""
        if None in (request.sample1.moment, request.sample2.moment) or request.sample1.moment >= request.sample2.moment:
            raise FakeNvmlError(_INVALID_ARGUMENT)
        for slot in request.metrics[: request.numMetrics]:
            known = slot.metricId in request.sample2.pct
            slot.nvmlReturn = 0 if known else _NOT_SUPPORTED
            slot.value = request.sample2.pct.get(slot.metricId, 0.0)
        return request
