"""Which card CUDA means by an index: neither NVML's order nor all of its cards.

Run as a module it writes CUDA's own answer to its output, as JSON.
"""

import ctypes
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tuner.errors import DeviceError

_SUCCESS = 0
_NO_DEVICE = 100
_TIMEOUT_S = 60


def cuda_uuids(load: Callable[[str], Any] = ctypes.CDLL) -> list[str] | None:
    """Ask CUDA's driver for the UUIDs of its cards, by index; None where it does not answer.

    Creates no context, but while the calling process lives, CUDA holds some 3 MiB of each card (H200).
    """
    try:
        library = load("libcuda.so.1")
    except OSError:
        return None
    count = ctypes.c_int()
    status = library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(count))
    if status == _NO_DEVICE:
        return []
    if status != _SUCCESS:
        return None
    uuids: list[str] = []
    for index in range(count.value):
        device, identity = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        if library.cuDeviceGet(ctypes.byref(device), index) or library.cuDeviceGetUuid_v2(identity, device):
            return None
        uuids.append(f"GPU-{uuid.UUID(bytes=bytes(identity))}")
    return uuids


def cuda_uuids_apart() -> list[str] | None:
    """Give the answer of `cuda_uuids` in a process of its own, so that this one holds nothing of a card.

    It imports nothing from the working directory, where a file may have the name of a module.

    Raises DeviceError when CUDA does not come back.
    """
    try:
        asked = subprocess.run(
            [sys.executable, "-P", "-m", __name__], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise DeviceError(f"CUDA has not started within {_TIMEOUT_S} s; does `nvidia-smi` work?") from error
    return json.loads(asked.stdout) if asked.returncode == 0 else None


def visible_uuids(
    pci_order: Sequence[str],
    environ: Mapping[str, str] = os.environ,
    ask: Callable[[], list[str] | None] = cuda_uuids_apart,
) -> list[str]:
    """Give the UUIDs of the cards by CUDA index, leaving out those that CUDA_VISIBLE_DEVICES hides.

    CUDA itself is asked, since only it knows its default order, the fastest card first. Where it does not answer, the
    cards count in `pci_order`.
    """
    told = ask()
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


if __name__ == "__main__":
    sys.stdout.write(json.dumps(cuda_uuids()))
