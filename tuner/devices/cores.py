"""How many cores this process may use: those it may run on, or fewer where control groups grant less of their time."""

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_UNIFIED = ("cpu.max",)
"""The file of a quota and its period where all controllers share one tree (the kernel's cgroup-v2.rst)."""
_LEGACY = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
"""The two files in the tree of the CPU controller alone (the kernel's sched-bwc.rst)."""


def usable_cores(root: Path = Path("/")) -> int:
    """Count the cores that this process may use, at least one.

    Containers are often given not certain cores but so much time of all of them; a part of a core counts as one more.
    """
    return min([len(os.sched_getaffinity(0)), *map(math.ceil, _quotas(root))])


def _quotas(root: Path) -> Iterator[float]:
    """Give each quota on this process, in cores: that of its own control group and those of the groups above it.

    A container may know the path of its group and see no folder but its own, which then lies where all paths begin.
    """
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text(encoding="utf-8", errors="replace").splitlines():
            _, controllers, path = line.split(":", 2)
            if "cpu" in controllers.split(","):
                mount, files = root / "sys/fs/cgroup/cpu", _LEGACY
            elif not controllers:
                mount, files = root / "sys/fs/cgroup", _UNIFIED
            else:
                continue
            group = mount / path.lstrip("/")
            for folder in (group, *group.parents):
                if folder.is_relative_to(mount):
                    yield from _quota(folder, files)


def _quota(folder: Path, files: tuple[str, ...]) -> Iterator[float]:
    """Read one group's quota where it has one: neither `max` nor -1."""
    with suppress(OSError, ValueError):
        quota, period = (int(word) for file in files for word in (folder / file).read_text(encoding="utf-8").split())
        if quota > 0 and period > 0:
            yield quota / period
