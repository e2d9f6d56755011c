"""Which card CUDA means by an index: neither NVML's order nor all of its cards."""

import ctypes
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_SUCCESS = 0
_NO_DEVICE = 100


def visible_uuids(
    pci_order: Sequence[str],
    environ: Mapping[str, str] = os.environ,
    load: Callable[[str], Any] = ctypes.CDLL,
) -> list[str]:
    """Give the UUIDs of the cards by CUDA index, leaving out those that CUDA_VISIBLE_DEVICES hides.

    CUDA's driver itself is asked, since only it knows the default order, the fastest card first; this creates no
    context and takes no memory of a card. Where it does not answer, the cards count in `pci_order`.
    """
    try:
        library = load("libcuda.so.1")
    except OSError:
        library = None
    told = None if library is None else _ask(library)
    return selected(environ.get("CUDA_VISIBLE_DEVICES"), pci_order) if told is None else told


def selected(visible: str | None, uuids: Sequence[str]) -> list[str]:
    """Apply a value of CUDA_VISIBLE_DEVICES to the cards `uuids`, as CUDA does.

    Entries are indices or beginnings of UUIDs that only one card has; the first that names no card ends the list
    (CUDA C++ Programming Guide, "CUDA Environment Variables").
    """
    if visible is None:
        return list(uuids)
    chosen: list[str] = []
    for entry in visible.split(","):
        card = _card(entry.strip(), uuids)
        if card is None:
            break
        chosen.append(card)
    return chosen


def _card(entry: str, uuids: Sequence[str]) -> str | None:
    if entry.isdecimal():
        return uuids[int(entry)] if int(entry) < len(uuids) else None
    matches = [card for card in uuids if entry and card.startswith(entry)]
    return matches[0] if len(matches) == 1 else None


def _ask(library: Any) -> list[str] | None:
    """Ask CUDA's driver for its cards in order; None where it does not answer."""
    count = ctypes.c_int()
    status = library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(count))
    if status == _NO_DEVICE:
        return []
    if status != _SUCCESS:
        return None
    cards: list[str] = []
    for index in range(count.value):
        device, identity = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        if library.cuDeviceGet(ctypes.byref(device), index) or library.cuDeviceGetUuid_v2(identity, device):
            return None
        cards.append(f"GPU-{uuid.UUID(bytes=bytes(identity))}")
    return cards
