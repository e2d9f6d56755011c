"""Reads AMD GPUs through AMD SMI (`amdsmi`, ROCm 6.1 or newer).

It follows AMD's documentation and was tested on what that says; nobody has run it on such a card yet.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar

from tuner.devices.card_driver import Driver, NoDriverError
from tuner.errors import DeviceError
from tuner.probe import AMD, Device, DeviceSample

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
