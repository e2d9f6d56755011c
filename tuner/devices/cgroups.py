"""What of the machine's cores and memory this process may use, where control groups, as of a container, grant it less.

The files are those of the kernel's cgroup-v2.rst, where all controllers share one tree, or of its cgroup-v1 documents
(sched-bwc.rst, memory.rst), where each has a tree of its own.
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
    """Count the cores that this process may use, at least one.

    Containers are often given not certain cores but so much time of all of them; a part of a core counts as one more.
    """
    quotas = (quota / period for quota, period in _limits(root, "cpu"))
    return min([len(os.sched_getaffinity(0)), *map(math.ceil, quotas)])


def usable_memory(root: Path = Path("/")) -> int:
    """Give the bytes of memory that this process and those beside it in its groups may use together."""
    return min([psutil.virtual_memory().total, *(limit for (limit,) in _limits(root, "memory"))])


def _limits(root: Path, controller: str) -> Iterator[list[int]]:
    """Give what limits this process: its own group and those above it, each in the numbers of its files.

    A container may know the path of its group and see no folder but its own, which then lies where all paths begin.
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
    """Read one group's limit where it has one: neither `max` nor -1."""
    with suppress(OSError, ValueError):
        numbers = [int(word) for file in files for word in (folder / file).read_text(encoding="utf-8").split()]
        if numbers and min(numbers) > 0:
            yield numbers
