"""Devices for tests: recorded ones, a fake NVML, and the contract that every source of samples keeps."""

import itertools
import json
import os
from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from itertools import groupby
from pathlib import Path
from threading import Event
from types import ModuleType, SimpleNamespace
from typing import Any

from tuner.probe import Device, DeviceSample, DeviceSource
from tuner.probe.quantities import BYTES_PER_MIB


def check_device_source(source: DeviceSource) -> None:
    """Check a source of devices with two measurements whose time stamps lie a second apart. Raises AssertionError."""
    devices = source.devices
    _require(bool(source.label), "label is empty")
    _require(bool(devices), "there are no devices")
    names = [device.name for device in devices]
    kind = "cuda" if devices[0].is_gpu else "cpu"
    _require(names == [f"{kind}:{rank}" for rank in range(len(devices))], f"devices are named {names}")
    source.attach(os.getpid())
    for t_s in (0.25, 1.25):
        samples = source.sample(t_s)
        _require([sample.device for sample in samples] == list(range(len(devices))), f"not one reading each: {samples}")
        for sample in samples:
            _require(sample.t_s == t_s, f"not stamped with {t_s}: {sample}")
            _check_values(sample)
    _require(source.devices == devices, "devices changed while reading")


def _check_values(sample: DeviceSample) -> None:
    shares = (sample.util_pct, sample.sm_pct, sample.occupancy_pct, sample.tensor_pct, sample.dram_pct)
    _require(all(share is None or 0 <= share <= 100 for share in shares), f"a share is beyond 0 to 100: {sample}")
    used_mib, total_mib = sample.mem_used_mib, sample.mem_total_mib
    _require(used_mib is None or used_mib > 0, f"memory in use is not positive: {sample}")
    _require(total_mib is None or total_mib >= (used_mib or 0), f"more memory in use than there is: {sample}")
    _require(sample.power_w is None or sample.power_w >= 0, f"power is negative: {sample}")
    _require(sample.energy_j is None or sample.energy_j >= 0, f"energy is negative: {sample}")


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise AssertionError(otherwise)


_FLAT_COLUMNS = 3  # of one card in the older format: utilisation, memory, power
_GPM_FIELDS = {
    "SM_UTIL": "sm_pct",
    "SM_OCCUPANCY": "occupancy_pct",
    "ANY_TENSOR_UTIL": "tensor_pct",
    "DRAM_BW_UTIL": "dram_pct",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedProbe:
    """A probe as it was recorded on real cards."""

    devices: tuple[Device, ...]
    samples: tuple[DeviceSample, ...]
    """The samples sorted by time. All cards that were measured at one moment stand together."""
    marks_s: tuple[float, ...]
    """The time at which the recorder saw the end of each iteration."""
    error_s: float | None = None
    """The time at which the recorder saw the first error line of a rank; None if there was none."""
    total_s: float
    exit_code: int
    """The trainer's exit code. A negative code is the number of the signal that ended the trainer."""


def load_recording(path: Path) -> RecordedProbe:
    """Read a recording. Its rows are `[t_s, [util, mem, power, gpm or null], …]`, or flat lists without GPM."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    names = raw.get("gpm_names", [])
    rows = [(row[0], _cards(row[1:])) for row in raw["series"]]
    samples = [_sample(t_s, device, card, names) for t_s, cards in rows for device, card in enumerate(cards)]
    return RecordedProbe(
        devices=tuple(Device(name=f"cuda:{index}", model="recorded GPU") for index in range(len(rows[0][1]))),
        samples=tuple(samples),
        marks_s=tuple(raw["iters_t"]),
        error_s=raw.get("first_err_s"),
        total_s=raw["elapsed"],
        exit_code=raw["rc"],
    )


def _cards(values: list[Any]) -> list[list[Any]]:
    if isinstance(values[0], list):
        return values
    return [[*values[start : start + _FLAT_COLUMNS], None] for start in range(0, len(values), _FLAT_COLUMNS)]


def _sample(t_s: float, device: int, card: list[Any], gpm_names: Sequence[str]) -> DeviceSample:
    util_pct, mem_used_mib, power_w, gpm = card
    gpm_pct = {
        _GPM_FIELDS[name]: value for name, value in zip(gpm_names, gpm or (), strict=False) if name in _GPM_FIELDS
    }
    return DeviceSample(
        t_s=t_s, device=device, util_pct=util_pct, mem_used_mib=mem_used_mib, power_w=power_w, **gpm_pct
    )


class ReplayedSource:
    """Returns recorded samples as if they were measured now: the last samples at or before the requested time."""

    label = "nvml"

    def __init__(self, recording: RecordedProbe) -> None:
        self.devices = recording.devices
        self._moments = [(t_s, list(cards)) for t_s, cards in groupby(recording.samples, key=lambda sample: sample.t_s)]

    def attach(self, pid: int) -> None:
        """Do nothing, because the recording contains whole cards."""

    def sample(self, t_s: float) -> list[DeviceSample]:
        """Return the recorded samples with the time `t_s`. All values are None before the recording begins."""
        index = bisect_right(self._moments, t_s, key=lambda moment: moment[0]) - 1
        if index < 0:
            return [DeviceSample(t_s=t_s, device=device) for device in range(len(self.devices))]
        return [replace(sample, t_s=t_s) for sample in self._moments[index][1]]


# ruff: noqa: N802, N815  names and meaning of these calls are NVML's own


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
    energy_j: float = 0.0
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
    def nvmlDeviceGetTotalEnergyConsumption(self, gpu: FakeGpu) -> int:
        return round(gpu.energy_j * 1000)

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
