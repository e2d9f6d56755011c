"""Which CPU cores are near a GPU, and how workers share them, so that probes side by side do not use the same cores."""

import os
from collections.abc import Collection, Sequence

from tuner.devices.nvml import Nvml

_BITS = 64
"""NVML gives a set of cores as words of so many bits (nvml.h, nvmlDeviceGetCpuAffinity)."""


def near_cores(nvml: Nvml, uuids: Sequence[str]) -> frozenset[int]:
    """Return the cores near any of the cards, as the driver reports them; empty when the driver does not report them.

    Raises DeviceError when a card does not answer.
    """
    words = -(-(os.cpu_count() or 1) // _BITS)
    cores: set[int] = set()
    for uuid in uuids:
        masks = nvml.ask(uuid, nvml.library.nvmlDeviceGetCpuAffinity, nvml.handle(uuid), words) or ()
        cores.update(
            word * _BITS + bit for word, mask in enumerate(masks) for bit in range(_BITS) if int(mask) >> bit & 1
        )
    return frozenset(cores)


def share_cores(near: Sequence[Collection[int]], allowed: Collection[int]) -> list[list[int]]:
    """Return disjoint cores for each worker, near its cards where possible. Pure.

    `near` holds the cores near each worker's cards; an empty set stands for all allowed cores. Workers that are near
    the same cores get equal parts of them, one block after the other. A list is empty where fewer cores are allowed
    than there are workers; that worker is not pinned.
    """
    free = sorted(allowed)
    wanted = [set(cores) & set(free) or set(free) for cores in near]
    shares: list[list[int]] = []
    for index, mine in enumerate(wanted):
        rivals = 1 + sum(bool(mine & other) for other in wanted[index + 1 :])
        candidates = [core for core in free if core in mine]
        shares.append(candidates[: len(candidates) // rivals])
        free = [core for core in free if core not in shares[-1]]
    return shares
