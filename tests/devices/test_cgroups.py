"""The limits of control groups on this process, in files as the kernel and containers write them."""

from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

from tuner.devices.cpu import usable_cores, usable_memory

LEGACY = "4:memory:/job\n3:cpu,cpuacct:{}\n0::/\n"
UNIFIED = "0::{}\n"
MEMORY = psutil.virtual_memory().total


def system(folder: Path, groups: str, files: Mapping[str, str]) -> Path:
    """Write the files that a process reads about its control groups below a root; `files` lie below /sys/fs/cgroup."""
    for name, text in {
        "proc/self/cgroup": groups,
        **{f"sys/fs/cgroup/{file}": text for file, text in files.items()},
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def legacy(group: str, quota: int) -> dict[str, str]:
    return {f"cpu/{group}cpu.cfs_quota_us": f"{quota}\n", f"cpu/{group}cpu.cfs_period_us": "100000\n"}


@pytest.fixture(autouse=True)
def _eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(8)))


@pytest.mark.parametrize(
    ("groups", "files", "cores"),
    [
        (UNIFIED.format("/"), {"cpu.max": "200000 100000\n"}, 2),
        (UNIFIED.format("/"), {"cpu.max": "150000 100000\n"}, 2),
        (UNIFIED.format("/"), {"cpu.max": "1000 100000\n"}, 1),
        (UNIFIED.format("/"), {"cpu.max": "max 100000\n"}, 8),
        (UNIFIED.format("/"), {"cpu.max": "6400000 100000\n"}, 8),
        (UNIFIED.format("/job/step"), {"job/cpu.max": "300000 100000\n", "job/step/cpu.max": "max 100000\n"}, 3),
        (UNIFIED.format("/job/step"), {"job/cpu.max": "300000 100000\n", "job/step/cpu.max": "50000 50000\n"}, 1),
        (UNIFIED.format("/seen/by/the/host"), {"cpu.max": "200000 100000\n"}, 2),
        (UNIFIED.format("/job"), {"other/cpu.max": "200000 100000\n"}, 8),
        (LEGACY.format("/"), legacy("", 250_000), 3),
        (LEGACY.format("/"), legacy("", -1), 8),
        (LEGACY.format("/job/step"), legacy("job/step/", -1) | legacy("job/", 400_000), 4),
        (LEGACY.format("/docker/0a1b"), legacy("", 100_000), 1),
        (LEGACY.format("/"), {"cpu/cpu.cfs_quota_us": "", "cpu.max": "garbage"}, 8),
        ("", {}, 8),
    ],
)  # fmt: skip
def test_the_least_quota_counts(tmp_path: Path, groups: str, files: Mapping[str, str], cores: int) -> None:
    assert usable_cores(system(tmp_path, groups, files)) == cores


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        (UNIFIED.format("/job/step"), {"job/memory.max": "3000\n", "job/step/memory.max": "max\n"}, 3000),
        (UNIFIED.format("/"), {"memory.max": "max\n"}, MEMORY),
        (LEGACY.format("/"), {"memory/job/memory.limit_in_bytes": "5000\n"}, 5000),
        (LEGACY.format("/"), {"memory/memory.limit_in_bytes": "9223372036854771712\n"}, MEMORY),
    ],
)
def test_the_least_memory_counts(tmp_path: Path, groups: str, files: Mapping[str, str], limit: int) -> None:
    assert usable_memory(system(tmp_path, groups, files)) == limit


def test_a_system_without_control_groups_lets_use_all(tmp_path: Path) -> None:
    assert (usable_cores(tmp_path), usable_memory(tmp_path)) == (8, MEMORY)


def test_here_there_is_at_least_one() -> None:
    assert 1 <= usable_cores() <= 8
    assert 0 < usable_memory() <= MEMORY
