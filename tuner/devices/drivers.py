"""Asks the drivers of cards, in calls that cannot hang the tuner: NVML for NVIDIA's cards, AMD SMI for AMD's.

NVML is NVIDIA's management library. Its profiling metrics (GPM) are means over an interval between two of NVML's own
samples, such as how busy the multiprocessors (SM) were. AMD SMI (`amdsmi`, ROCm 6.1 or newer) is used as AMD's
documentation says, and was tested on that; nobody has run it on such a card yet.
"""

import math
import os
import re
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from importlib import import_module
from queue import SimpleQueue
from threading import Thread
from types import ModuleType
from typing import Any, ClassVar, TypeVar

import pynvml

from tuner.errors import DeviceError, DeviceLostError
from tuner.probe import AMD, Device, DeviceSample, mib

_Answer = TypeVar("_Answer")
_Requests = SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]] | None]
"""For each call, what takes its answer, the function and its arguments; None ends the thread."""


class Calls:
    """Runs calls of a driver, one after another, in a thread of its own: a call that hangs cannot hang the tuner.

    While a call hangs, every further call fails at once with TimeoutError. Once the hanging call returns, calls work
    again. The thread ends with this object, unless a call hangs in it.
    """

    def __init__(self, name: str) -> None:
        """Start the thread, and give it a name."""
        self._requests: _Requests = SimpleQueue()
        self._overdue: tuple[Future[Any], str] | None = None
        """The answer of the last call that took too long, and the `problem` of that call."""
        Thread(target=_serve, args=(self._requests,), name=name, daemon=True).start()
        weakref.finalize(self, self._requests.put, None)

    def make(self, problem: str, limit_s: float, call: Callable[..., _Answer], *arguments: Any) -> _Answer:
        """Return what `call` returns, or raise what it raises.

        Raises TimeoutError when the call takes longer than `limit_s`, or when an earlier call still hangs. The error's
        message is the `problem` of the call that hangs.
        """
        if self._overdue is None or self._overdue[0].done():  # no call hangs
            answer: Future[_Answer] = Future()
            self._requests.put((answer, call, arguments))
            try:
                return answer.result(limit_s)
            except TimeoutError:
                self._overdue = answer, problem
        raise TimeoutError(self._overdue[1])


def _serve(requests: _Requests) -> None:
    """Make the requested calls, one after another, until None is requested."""
    for answer, call, arguments in iter(requests.get, None):
        try:
            answer.set_result(call(*arguments))
        except Exception as error:  # noqa: BLE001  the thread that made the call raises it
            answer.set_exception(error)
        del answer, call, arguments  # otherwise these objects would live until the next call


class NoDriverError(DeviceError):
    """This machine has no such driver, or the driver has no card."""


class Driver:
    """A driver whose library has been started. Subclasses read `library`, `started` and `_open_s`.

    Raises NoDriverError without a driver, and DeviceError when the driver does not start.
    """

    MAKER: ClassVar[str]
    LIBRARY: ClassVar[str]
    LOOK: ClassVar[str]
    """Where a person finds out what is wrong: the end of a message."""
    NO_DRIVER: ClassVar[Collection[int]]
    """The errors of a machine without a driver, or without a card."""
    NOT_OFFERED: ClassVar[Collection[int]]
    """The errors of a call that this card or driver does not support."""
    LOST: ClassVar[Collection[int]] = ()
    """The errors of a card that cannot be used any more."""

    def __init__(
        self,
        library: ModuleType,
        error: type[Exception],
        start: Callable[[], Any],
        answer_s: float = 5.0,
        open_s: float = 120.0,
    ) -> None:
        """Start the library. A call that takes longer than its limit counts as hanging.

        Args:
            library: the module with the driver's functions.
            error: the class of the errors that these functions raise.
            start: the function that starts the library.
            answer_s: the seconds for a call, which normally takes microseconds. It hangs, for example, when its card
                has fallen off the bus.
            open_s: the seconds for a call that may wake up the cards. Waking up takes seconds per card when the driver
                does not stay loaded.
        """
        self.library = library
        self._error = error
        self._answer_s = answer_s
        self._open_s = open_s
        self._calls = Calls(self.LIBRARY)
        try:
            self.started = self._calls.make("", open_s, start)
            """What `start` has returned."""
        except TimeoutError as hanging:
            raise DeviceError(f"the {self.MAKER} driver hangs as it starts; {self.LOOK}") from hanging
        except error as failed:
            why = f"({self.LIBRARY}: {failed})"
            if self._code(failed) in self.NO_DRIVER:
                raise NoDriverError(f"there is no {self.MAKER} driver on this machine {why}") from failed
            raise DeviceError(f"the {self.MAKER} driver does not start {why}; {self.LOOK}") from failed

    def _code(self, error: Any) -> int | None:
        """Return the number of an error of the library; None for any other error."""
        raise NotImplementedError

    def ask(
        self, subject: str, call: Callable[..., _Answer], *arguments: Any, limit_s: float | None = None
    ) -> _Answer | None:
        """Return what `call` returns, or None when the card or the driver does not support the call.

        `limit_s` replaces the usual time after which a call counts as hanging. Raises DeviceLostError when the card is
        lost, and DeviceError for every other error. The message names `subject`, or the subject of an earlier call that
        still hangs.
        """
        problem = f"{subject} does not answer {call.__name__}"
        try:
            return self._calls.make(problem, limit_s or self._answer_s, call, *arguments)
        except TimeoutError as error:
            raise DeviceError(f"{error}: the call hangs in the driver; {self.LOOK}") from error
        except self._error as error:
            if self._code(error) in self.NOT_OFFERED:
                return None
            kind = DeviceLostError if self._code(error) in self.LOST else DeviceError
            raise kind(f"{problem} ({self.LIBRARY}: {error}); {self.LOOK}") from error


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
        """Measure how busy the card with this handle is; `nvml` is NVML's library."""
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


VISIBLE = "ROCR_VISIBLE_DEVICES"
"""The environment variable with the cards that ROCm shows to a process: indices, or names such as GPU-4b2c1a9f8d3e6f7a.

ROCm, "GPU isolation techniques".
"""
HIP_VISIBLE = "HIP_VISIBLE_DEVICES"
"""The environment variable that chooses among these cards, by index."""


def library() -> ModuleType:
    """Return AMD's Python package. Raises NoDriverError if it, or the ROCm that it needs, is not there."""
    try:
        return import_module("amdsmi")
    except (ImportError, OSError, AttributeError, KeyError) as error:  # as its loader raises without ROCm
        raise NoDriverError(f"there is no AMD SMI on this machine ({error})") from error


class Amd(Driver):
    """An initialised AMD SMI. `load` returns AMD's package."""

    MAKER, LIBRARY, LOOK = "AMD", "AMD SMI", "see `amd-smi list` and the kernel's log"
    NO_DRIVER: ClassVar = {31, 34, 51}
    """Not found, driver not loaded, no driver (amdsmi.h, amdsmi_status_t)."""
    NOT_OFFERED: ClassVar = {2, 3, 10, 40, 49}
    """Not supported, not implemented yet, no permission, no data, no such message."""

    def __init__(self, load: Callable[[], ModuleType] = library) -> None:
        """Start AMD SMI, which `load` imports, and find its cards. Raises NoDriverError without a driver or a card."""
        smi = load()

        def start() -> Any:
            smi.amdsmi_init()
            return smi.amdsmi_get_processor_handles()

        super().__init__(smi, smi.AmdSmiException, start)
        cards = enumerate(self.started)  # what `start` has returned
        self.handles = {self._name(place, handle): handle for place, handle in cards}
        """The name of each card, as `VISIBLE` takes it, and its handle, in AMD SMI's order."""
        if not self.handles:
            raise NoDriverError("the AMD driver has no card")

    def _code(self, error: Any) -> int | None:
        return getattr(error, "get_error_code", lambda: None)()

    def _name(self, place: int, handle: Any) -> str:
        """Return the name of a card, as `VISIBLE` takes it: its serial number, or its index where it has none."""
        asic = self.ask(f"card {place}", self.library.amdsmi_get_gpu_asic_info, handle) or {}
        serial = str(asic.get("asic_serial", "")).lower().removeprefix("0x")
        is_serial = re.fullmatch(r"[0-9a-f]{1,16}", serial) is not None and int(serial, 16) > 0
        return f"GPU-{serial.zfill(16)}" if is_serial else str(place)


def visible_names(names: Sequence[str], environment: Mapping[str, str] | None = None) -> list[str]:
    """Return the names of the cards that a trainer sees, in its order. `names` are those of all cards of the machine.

    Two variables of `environment` choose cards: one of ROCm, and one of HIP among the cards that ROCm shows. None
    stands for the environment of this process. Raises DeviceError for a variable that names an unknown card.
    """
    environment = os.environ if environment is None else environment
    hip_variable = HIP_VISIBLE if HIP_VISIBLE in environment else "CUDA_VISIBLE_DEVICES"  # HIP reads both
    for variable in (VISIBLE, hip_variable):  # HIP chooses among the cards that ROCm shows
        if (text := environment.get(variable)) is None:
            continue
        visible: list[str] = []
        for word in filter(None, map(str.strip, text.split(","))):
            matching = [name for place, name in enumerate(names) if word.lower() in {str(place), name.lower()}]
            if not matching:
                raise DeviceError(f"{variable}={text} names {word}, and there are {', '.join(names)}; {Amd.LOOK}")
            visible += matching
        names = visible
    return list(names)


def amd_variables(devices: Sequence[Device]) -> dict[str, str]:
    """Return the environment variables that show a trainer these cards alone, in this order."""
    indices = ",".join(map(str, range(len(devices))))  # HIP counts only the cards that ROCm shows
    return {VISIBLE: ",".join(device.uuid or "" for device in devices), HIP_VISIBLE: indices}


class AmdSource:
    """Measures utilisation, memory, power and energy of whole AMD cards, which PyTorch names `cuda:0`, `cuda:1`, …."""

    label = "amdsmi"

    def __init__(self, amd: Amd, names: Sequence[str], memory_mib: float | None = None) -> None:
        """Prepare to read cards, in rank order. `memory_mib`: what each has for the trainer; None for all of it."""
        self._amd = amd
        self._handles = [amd.handles[name] for name in names]
        self.devices = tuple(self._device(place, name, memory_mib) for place, name in enumerate(names))
        """The cards, in rank order."""

    def _device(self, place: int, name: str, memory_mib: float | None) -> Device:
        """Return what is known of a card."""
        asic = self._ask(place, self._amd.library.amdsmi_get_gpu_asic_info) or {}
        vram = self._ask(place, self._amd.library.amdsmi_get_gpu_vram_usage) or {}
        model = str(asic.get("market_name") or "unknown GPU")
        total_mib = memory_mib or _number(vram.get("vram_total"))
        return Device(name=f"cuda:{place}", model=model, uuid=name, mem_total_mib=total_mib, maker=AMD)

    def attach(self, pid: int) -> None:
        """Do nothing, because the source measures whole cards."""

    def sample(self, t_s: float) -> list[DeviceSample]:
        """Return a sample of every card, taken now. Raises DeviceError where a card does not answer."""
        return [self._sample(t_s, place) for place in range(len(self.devices))]

    def _sample(self, t_s: float, place: int) -> DeviceSample:
        """Return a sample of a card. Some values have had another name in earlier versions of ROCm."""
        amd = self._amd.library
        activity = self._ask(place, amd.amdsmi_get_gpu_activity) or {}
        vram = self._ask(place, amd.amdsmi_get_gpu_vram_usage) or {}
        power = self._ask(place, amd.amdsmi_get_power_info) or {}
        energy = self._ask(place, amd.amdsmi_get_energy_count) or {}
        powers_w = (_number(power.get(f"{kind}_socket_power")) for kind in ("current", "average"))  # a card has either
        count = _number(energy.get("energy_accumulator", energy.get("power")))
        step_uj = _number(energy.get("counter_resolution"))
        return DeviceSample(
            t_s=t_s,
            device=place,
            util_pct=_number(activity.get("gfx_activity")),
            mem_used_mib=_number(vram.get("vram_used")) or None,
            mem_total_mib=self.devices[place].mem_total_mib,
            power_w=next((watts for watts in powers_w if watts), None),
            energy_j=None if count is None or step_uj is None else count * step_uj / 1e6,
        )

    def _ask(self, place: int, call: Callable[..., Any]) -> Any:
        """Return what a function of AMD SMI says about the card at a place; None where it does not support the call."""
        return self._amd.ask(f"cuda:{place}", call, self._handles[place])


def _number(value: object) -> float | None:
    """Return a number of AMD SMI; None for what it does not know: "N/A", or all bits of 16 or 32 set."""
    if isinstance(value, int | float) and value not in {0xFFFF, 0xFFFFFFFF}:
        return float(value)
    return None
