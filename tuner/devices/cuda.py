"""Finds the card that CUDA means by an index. CUDA may order cards differently from NVML and may hide some of them.

Run as a module, this file asks CUDA and prints the answer as JSON.
"""

import ctypes
import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from tuner.errors import DeviceError
from tuner.probe import number_of


def cuda_uuids(load: Callable[[str], Any] = ctypes.CDLL) -> list[str] | None:
    """Return the UUIDs of CUDA's cards by index, as its driver reports them; None when the driver does not answer.

    The call creates no CUDA context. Still, CUDA keeps about 3 MiB of each card while the process lives (H200).
    `load` opens a library by its name. Raises AttributeError for a driver older than CUDA 11.4, which has no
    `cuDeviceGetUuid_v2`.
    """
    try:
        library = load("libcuda.so.1")
    except OSError:
        return None
    count = ctypes.c_int()
    status = library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(count))  # the first error; 0 without any
    if status:
        return [] if status == 100 else None  # CUDA_ERROR_NO_DEVICE
    uuids: list[str] = []
    for index in range(count.value):
        device, identity = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        if library.cuDeviceGet(ctypes.byref(device), index) or library.cuDeviceGetUuid_v2(identity, device):
            return None
        uuids.append(f"GPU-{uuid.UUID(bytes=bytes(identity))}")
    return uuids


def cuda_uuids_apart(python: str = sys.executable) -> list[str] | None:
    """Return the answer of `cuda_uuids` from a separate process, so that this process keeps no memory of a card.

    `python` runs the process. The process imports nothing from the working directory, where a file may have the name
    of a module.

    Raises DeviceError when CUDA does not answer within a minute, or where the separate process fails.
    """
    command = [python, "-P", "-m", __name__]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=60.0, check=False)  # s
    except subprocess.TimeoutExpired as error:
        raise DeviceError("CUDA did not start within a minute; does `nvidia-smi` work?") from error
    if process.returncode:
        why = process.stderr.strip().rpartition("\n")[2] or "it printed nothing"  # the last line of a traceback
        how = f"failed with code {process.returncode}: {why}"
        raise DeviceError(f"the process that asks CUDA for its cards {how}; does `nvidia-smi` work?")
    return json.loads(process.stdout)


def visible_uuids(cards: Sequence[str], ask: Callable[[], list[str] | None] = cuda_uuids_apart) -> list[str]:
    """Return the UUIDs of the cards by CUDA index, without those that CUDA_VISIBLE_DEVICES hides.

    `ask` asks CUDA itself, because only CUDA knows its default order (the fastest card first). `cards` are the UUIDs of
    all cards of the machine. Raises DeviceError if CUDA does not answer: no trainer could use the cards.
    """
    if (answer := ask()) is None:
        raise DeviceError(
            f"CUDA does not start, although the driver has {number_of(len(cards), 'card')}; does `nvidia-smi` work?"
        )
    return answer


if __name__ == "__main__":
    sys.stdout.write(json.dumps(cuda_uuids()))
