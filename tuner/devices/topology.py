"""How the cards reach each other, and the NCCL settings that follow."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from tuner.devices.nvml import Nvml
from tuner.probe.plan import Device

# nvmlGpuP2PCapsIndex_t and nvmlGpuP2PStatus_t in nvml.h; pynvml's own constant for READ is a tuple by mistake.
_READ, _WRITE, _NVLINK = 0, 1, 2
_OK = 0


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
    """Ask the driver about every pair of GPUs. Without two GPUs there are no pairs.

    Raises DeviceError when a card does not answer.
    """
    uuids = [(position, device.uuid) for position, device in enumerate(devices) if device.uuid is not None]
    if len(uuids) < 2:
        return ()
    nvml = connect()
    handles = [(position, nvml.handle(uuid)) for position, uuid in uuids]

    def able(pair: tuple[object, object], capability: int) -> bool | None:
        status = nvml.ask("a pair of cards", nvml.library.nvmlDeviceGetP2PStatus, *pair, capability)
        return None if status is None else status == _OK

    def both(*answers: bool | None) -> bool | None:
        return None if None in answers else all(answers)

    return tuple(
        Link(
            first=first,
            second=second,
            p2p=both(able((one, other), _READ), able((one, other), _WRITE)),
            nvlink=able((one, other), _NVLINK),
        )
        for (first, one), (second, other) in itertools.combinations(handles, 2)
    )


def nccl_variables(policy: Literal["auto", "on", "off"], links: Iterable[Link]) -> dict[str, str]:
    """Return the environment variables that allow or forbid NCCL direct access between cards.

    `auto` forbids direct access only when a pair of cards lacks it. Two RTX 4090s fail unless it is forbidden. Where
    cards have NVLink, forbidding it slows down an all-reduce of 256 MB from 276 to 26 GiB/s.
    """
    without = policy == "off" or (policy == "auto" and any(link.p2p is False for link in links))
    return {"NCCL_P2P_DISABLE": "1"} if without else {}
