"""The devices of this machine that a study can use, and how they are connected."""

import itertools
import os
import platform
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import pynvml

from tuner.devices.cpu import CpuSource, cpu_model, usable_cores, usable_memory
from tuner.devices.cuda import visible_uuids
from tuner.devices.drivers import Amd, AmdSource, NoDriverError, Nvml, NvmlSource, amd_variables, visible_names
from tuner.errors import DeviceError
from tuner.probe import AMD, MIB_PER_GIB, NVIDIA, THREADS, Device, DeviceSample, DeviceSource, mib, number_of
from tuner.probe.guard import MEMORY
from tuner.study import StudySpec, literal_keys


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """How a pair of devices is connected. None means that the driver does not report it."""

    first: int
    """The position of the first device in the list of devices."""
    second: int
    p2p: bool | None
    """Whether each card reads and writes the other card's memory directly."""
    nvlink: bool | None
    """Whether NVLink connects the cards."""


def links(devices: Sequence[Device], connect: Callable[[], Nvml] = Nvml) -> tuple[Link, ...]:
    """Return how every pair of NVIDIA GPUs is connected, as the driver reports it. Without two GPUs there are no pairs.

    `connect` starts NVIDIA's driver. Raises DeviceError when a card does not answer.
    """
    uuids = {position: device.uuid for position, device in enumerate(devices) if device.uuid and device.maker == NVIDIA}
    if len(uuids) < 2:
        return ()
    nvml = connect()
    handles = {position: nvml.handle(uuid) for position, uuid in uuids.items()}
    read = 0  # pynvml's own constant for reading is a tuple by mistake (nvml.h, nvmlGpuP2PCapsIndex_t)

    def can(pair: tuple[object, object], capability: int) -> bool | None:
        """Return whether a pair of cards has a capability of NVML; None where the driver does not say."""
        status = nvml.ask("a pair of cards", nvml.library.nvmlDeviceGetP2PStatus, *pair, capability)
        return None if status is None else status == pynvml.NVML_P2P_STATUS_OK

    connections: list[Link] = []
    for first, second in itertools.combinations(handles, 2):
        pair = (handles[first], handles[second])
        reads, writes = can(pair, read), can(pair, pynvml.NVML_P2P_CAPS_INDEX_WRITE)
        p2p = None if reads is None or writes is None else reads and writes
        nvlink = can(pair, pynvml.NVML_P2P_CAPS_INDEX_NVLINK)
        connections.append(Link(first=first, second=second, p2p=p2p, nvlink=nvlink))
    return tuple(connections)


NO_P2P = "NCCL_P2P_DISABLE"
"""The environment variable that forbids NCCL direct access between cards."""


def nccl_variables(policy: Literal["auto", "on", "off"], links: Iterable[Link]) -> dict[str, str]:
    """Return the environment variables that allow or forbid NCCL direct access between cards.

    The policy `auto` forbids direct access only when a pair of cards lacks it. Two RTX 4090s fail unless it is
    forbidden. Where cards have NVLink, forbidding it slows down an all-reduce of 256 MB from 276 to 26 GiB/s.
    """
    is_forbidden = policy == "off" or (policy == "auto" and any(link.p2p is False for link in links))
    return {NO_P2P: "1"} if is_forbidden else {}


MOST_RANKS_PER_CORE = 8
"""The most CPU ranks per core that a study may name. No real study needs so many.

Each rank is a process, so the limit keeps a typing error from starting thousands of processes.
"""

VISIBLE_CARDS = "CUDA_VISIBLE_DEVICES"
"""The environment variable with the cards that CUDA shows to a process."""

Connect = Callable[[], Nvml]
"""Starts NVIDIA's driver. Raises NoDriverError where there is none."""
CudaOrder = Callable[[Sequence[str]], Sequence[str]]
"""Takes the UUIDs of all cards; returns those that CUDA shows, in CUDA's order."""


@dataclass(frozen=True, slots=True)
class AbsentDevices:
    """Devices that are not on this machine, such as those of a table or of a future job: samples have no values."""

    devices: tuple[Device, ...]
    label: str

    def attach(self, pid: int) -> None:
        """Do nothing: no process can be followed."""

    def sample(self, t_s: float) -> list[DeviceSample]:
        """Return samples without values."""
        return [DeviceSample(t_s=t_s, device=device) for device in range(len(self.devices))]


def open_devices(
    spec: str,
    connect: Connect = Nvml,
    cuda_order: CudaOrder = visible_uuids,
    *,
    memory_mib: float | None = None,
    connect_amd: Callable[[], Amd] = Amd,
) -> DeviceSource:
    """Return the devices that a study names: `auto`, `auto:CARDS`, `cpu`, `cpu:RANKS`, or CUDA indices such as `0,1`.

    `auto` opens every card that CUDA shows, `auto:2` the first two, or as many as there are. Where there is no NVIDIA
    driver, these are AMD's cards that ROCm shows. Without a card both open two CPU ranks.

    Args:
        spec: What the study names.
        connect: Starts NVIDIA's driver.
        cuda_order: Returns the cards that CUDA shows.
        memory_mib: The memory of each device, where the trainer gets less than the device has.
        connect_amd: Starts AMD's driver.

    Raises:
        DeviceError: `spec` has another form, a card does not exist, there are more than `MOST_RANKS_PER_CORE` ranks per
            core, or the driver does not answer.
    """
    if cpu := re.fullmatch(r"cpu(?::([1-9]\d{0,9}))?", spec):
        ranks, cores = int(cpu[1] or 2), usable_cores()
        if ranks > (most := MOST_RANKS_PER_CORE * cores):
            requested = f"{ranks} ranks on {number_of(cores, 'core')}"
            raise DeviceError(f"devices cpu:{ranks} asks for {requested}; name cpu:{most} at most")
        return CpuSource(ranks, memory_mib=memory_mib)
    auto = re.fullmatch(r"auto(?::([1-9]\d{0,9}))?", spec)
    if not auto and not re.fullmatch(r"\d{1,9}(,\d{1,9})*", spec):
        raise DeviceError(f"devices {spec!r} is none of: auto, auto:CARDS, cpu, cpu:RANKS, or CUDA indices such as 0,1")
    missing_drivers = list[str]()
    for cards in _visible_cards(connect, cuda_order, connect_amd, missing_drivers):
        if auto is None:
            return cards.open(_names_at([int(index) for index in spec.split(",")], cards), memory_mib)
        if cards.names:  # a driver may show no card
            return cards.open(cards.names[: int(auto[1] or len(cards.names))], memory_mib)
    if auto is None:  # indices, and no driver
        why, ranks = " and ".join(missing_drivers), spec.count(",") + 1
        raise DeviceError(f"devices {spec} names GPUs, but {why}; `cpu:{ranks}` needs no GPU")
    return CpuSource(2, memory_mib=memory_mib)


class VisibleCards(NamedTuple):
    """The cards of one maker that a trainer may use."""

    names: Sequence[str]
    open: Callable[..., DeviceSource]
    """Takes the names of some cards and their memory in MiB, as `NvmlSource` does."""


def _visible_cards(
    connect: Connect, cuda_order: CudaOrder, connect_amd: Callable[[], Amd], missing_drivers: list[str]
) -> Iterator[VisibleCards]:
    """Yield the cards of each maker whose driver is on this machine, in the order of CUDA or ROCm.

    `connect` and `connect_amd` start a maker's driver, and `cuda_order` returns the cards that CUDA shows. For a maker
    without a driver, a message about it is appended to `missing_drivers`.
    """
    try:
        nvml = connect()
        yield VisibleCards(cuda_order(nvml.uuids()), partial(NvmlSource, nvml))
    except NoDriverError as error:
        missing_drivers.append(str(error))
    try:
        amd = connect_amd()
        yield VisibleCards(visible_names(list(amd.handles)), partial(AmdSource, amd))
    except NoDriverError as error:
        missing_drivers.append(str(error))


def without_cards(connect: Connect) -> list[str]:
    """Return in sentences why no card is visible: a driver shows none, or each maker's driver is missing."""
    missing_drivers = list[str]()
    with_driver = list(_visible_cards(connect, lambda uuids: uuids, Amd, missing_drivers))
    return ["there is a driver, and it shows no card"] if with_driver else missing_drivers


def spare_cards(spec: str, connect: Connect = Nvml, cuda_order: CudaOrder = visible_uuids) -> int:
    """Return how many visible NVIDIA cards a study with the devices `auto:CARDS` does not use; 0 for other devices.

    `connect` starts NVIDIA's driver, and `cuda_order` returns the cards that CUDA shows.
    """
    if not spec.startswith("auto:"):
        return 0
    wanted = int(spec.removeprefix("auto:"))
    with suppress(NoDriverError):
        return max(0, len(cuda_order(connect().uuids())) - wanted)
    return 0


def _names_at(indices: Sequence[int], cards: VisibleCards) -> list[str]:
    """Return the names of the cards at some indices. Raises DeviceError for an index twice, or without a card."""
    if len(set(indices)) < len(indices):
        spec = ",".join(map(str, indices))
        raise DeviceError(f"devices {spec} names a card twice; name a different card for each rank")
    if missing := [f"cuda:{index}" for index in indices if index >= len(cards.names)]:
        visible = ", ".join(f"{device.name} ({device.model})" for device in cards.open(cards.names).devices)
        shown = f"CUDA shows {visible or 'none'} (CUDA_VISIBLE_DEVICES can hide cards)"
        raise DeviceError(f"no card {', '.join(missing)} here; {shown}")
    return [cards.names[index] for index in indices]


def part_of(
    source: DeviceSource, positions: Sequence[int], connect: Connect = Nvml, memory_mib: float | None = None
) -> DeviceSource:
    """Open some devices of a source, by their positions, and return them.

    `connect`: starts NVIDIA's driver. `memory_mib`: what each device has for the trainer; None for all of its memory.
    Raises DeviceError when a card does not answer.
    """
    chosen = [source.devices[position] for position in positions]
    uuids = [device.uuid for device in chosen if device.uuid is not None]
    if uuids and chosen[0].maker == AMD:
        return AmdSource(Amd(), uuids, memory_mib)
    return NvmlSource(connect(), uuids, memory_mib) if uuids else CpuSource(len(chosen), memory_mib=memory_mib)


def device_variables(devices: Sequence[Device]) -> dict[str, str]:
    """Return the environment variables that restrict a trainer to these devices.

    On GPUs, the trainer sees only these cards, as `cuda:0`, `cuda:1`, … in this order. On CPU ranks, each rank starts
    one thread per core of its share. torchrun limits threads in the same way, so that ranks do not compete for cores.
    """
    if any(device.maker == AMD for device in devices):
        return amd_variables(devices)
    if uuids := [device.uuid for device in devices if device.is_gpu and device.uuid is not None]:
        return {VISIBLE_CARDS: ",".join(uuids)}
    return {THREADS: str(max(1, usable_cores() // len(devices)))}


def launch_variables(
    spec: StudySpec, source: DeviceSource, inherited: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the environment variables of the trainer's processes, for its devices, for NCCL and from the study.

    On CPU ranks, a number of threads that the person has exported replaces the share of `device_variables`. `inherited`
    is the environment of this process. The guard limits the memory of CPU ranks. The study's own variables come last.
    """
    threads = (os.environ if inherited is None else inherited).get(THREADS)
    memory_mib = spec.environment.memory_mib
    on_cpu = not source.devices[0].is_gpu
    return {
        **device_variables(source.devices),
        **({THREADS: threads} if threads and on_cpu else {}),
        **nccl_variables(spec.environment.nccl_p2p, links(source.devices)),
        **({MEMORY: f"{memory_mib:.0f}"} if memory_mib is not None and on_cpu else {}),
        **spec.environment.variables,
    }


def describe_machine(source: DeviceSource, connect: Connect = Nvml) -> dict[str, str]:
    """Return facts about the kind of machine, for the results. No fact identifies this particular machine.

    `connect` starts NVIDIA's driver, which is asked for its version.
    """
    models = Counter(device.model for device in source.devices if device.is_gpu)
    facts = {"gpus": ", ".join(f"{count} x {model}" for model, count in models.items())} if models else {}
    if models:
        with suppress(NoDriverError):
            facts |= connect().versions()
    return facts | {
        "cpu": cpu_model(),
        "cores": str(usable_cores()),
        "memory": f"{mib(usable_memory()) / MIB_PER_GIB:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
    }


def variables_of_line(spec: StudySpec, launched: Mapping[str, str], ranks: int) -> dict[str, str]:
    """Return the variables that a command line must set so that a training runs as the probes of a study; no keys.

    Args:
        spec: the study.
        launched: the variables of its probes.
        ranks: the number of its devices. A single rank takes all cores by itself.
    """
    names = {THREADS, NO_P2P, *spec.environment.variables} - literal_keys((), spec.environment.variables).keys()
    if ranks == 1 and launched.get(THREADS) == str(usable_cores()):
        names.remove(THREADS)
    cards = cards_to_name(spec.devices, os.environ.get(VISIBLE_CARDS))
    return ({VISIBLE_CARDS: cards} if cards else {}) | {name: launched[name] for name in launched if name in names}


def cards_to_name(devices: str, exported: str | None) -> str:
    """Return the value of CUDA_VISIBLE_DEVICES with which a training uses the cards that a study names.

    Args:
        devices: the study's devices, such as `2,3` or `auto`.
        exported: the variable's value in the shell, such as `4,5,6,7`. `devices` then counts among these cards: `2`
            is card 6. None if the variable is not set.

    Returns:
        Empty where a training takes these cards by itself: the first ones, as many as it has ranks, all cards, or none.
    """
    places = devices.split(",")
    if not all(map(str.isdigit, places)) or places == [str(place) for place in range(len(places))]:
        return ""
    shown = _cards_in(exported)
    return ",".join(shown[int(place)] if int(place) < len(shown) else place for place in places)


def named_devices(cards: str, exported: str | None) -> str:
    """Return the devices of a study whose command sets CUDA_VISIBLE_DEVICES to `cards`, such as `6,7` → `2,3`.

    It is the reverse of `cards_to_name`, which explains `exported`. Raises DeviceError for cards that are not named by
    number, and for one that the exported variable hides.
    """
    names, shown = _cards_in(cards), _cards_in(exported)
    if not all(map(str.isdigit, names)):
        raise DeviceError(f"{VISIBLE_CARDS}={cards} in the command: name cards by their numbers, such as 2,3")
    if hidden := [name for name in names if shown and name not in shown]:
        raise DeviceError(f"the exported {VISIBLE_CARDS}={exported} hides card {hidden[0]} of the command")
    return ",".join(str(shown.index(name)) if shown else name for name in names)


def _cards_in(variable: str | None) -> list[str]:
    """Return the names of the cards in a value of CUDA_VISIBLE_DEVICES; empty without a value."""
    return [name.strip() for name in variable.split(",")] if variable else []
