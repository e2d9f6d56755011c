"""How many cores and how much memory this process may use. A control group, such as a container's, may limit both.

The kernel documents the files. In version 2 (cgroup-v2.rst) all controllers share one tree of folders. In version 1
(sched-bwc.rst, memory.rst) each controller has its own tree.
"""

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

_UNIFIED = {"cpu": ["cpu.max"], "memory": ["memory.max"]}
_LEGACY = {"cpu": ["cpu.cfs_quota_us", "cpu.cfs_period_us"], "memory": ["memory.limit_in_bytes"]}


def usable_cores(root: Path = Path("/")) -> int:
    """Return the number of cores that this process may use, at least one.

    A container often gets a share of the time of all cores, rather than certain cores. The share is converted to a
    number of cores and rounded up.
    """
    quotas = (quota / period for quota, period in _limits(root, "cpu"))
    return min([len(os.sched_getaffinity(0)), *map(math.ceil, quotas)])


def usable_memory(root: Path = Path("/")) -> int:
    """Return the bytes of memory that this process and the other processes of its groups may use together."""
    return min([psutil.virtual_memory().total, *(limit for (limit,) in _limits(root, "memory"))])


def _limits(root: Path, controller: str) -> Iterator[list[int]]:
    """Yield the numbers in the limit files of this process's group and of every group above it.

    A container may know the full path of its group but see only its own folder. That folder then lies at the root of
    the tree, so the root is searched too.
    """
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text(encoding="utf-8", errors="replace").splitlines():
            _, controllers, path = line.split(":", 2)
            if controller in controllers.split(","):
                mount, files = root / "sys/fs/cgroup" / controller, _LEGACY[controller]
            elif not controllers:
                mount, files = root / "sys/fs/cgroup", _UNIFIED[controller]
            else:
                continue
            group = mount / path.lstrip("/")
            for folder in (group, *group.parents):
                if folder.is_relative_to(mount):
                    yield from _limit(folder, files)


def _limit(folder: Path, files: Sequence[str]) -> Iterator[list[int]]:
    """Yield the numbers of one group's limit. A group without a limit (`max` or -1) yields nothing."""
    with suppress(OSError, ValueError):
        numbers = [int(word) for file in files for word in (folder / file).read_text(encoding="utf-8").split()]
        if numbers and min(numbers) > 0:
            yield numbers
