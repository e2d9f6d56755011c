import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests_devices import check_device_source

from tuner.devices.cpu import (
    CpuSource,
    CpuTime,
    OtherPrograms,
    Peaks,
    ProcessUsage,
    ThreadTimes,
    data_memory,
    find_owners,
    find_ranks,
    spent_s,
)
from tuner.probe.quantities import BYTES_PER_MIB


class FakeProcess:
    """A process of a scripted tree, with the methods of psutil."""

    def __init__(
        self, pid: int, parent: "FakeProcess | None" = None, *, created_s: float = 0.0, **environ: str
    ) -> None:
        self.pid = pid
        self.cpu_s = 0.0
        self.reaped_s = 0.0
        self.gone = False
        self._parent = parent
        self._created_s = created_s
        self._environ = environ
        self._children: list[FakeProcess] = []
        if parent is not None:
            parent._children.append(self)

    @contextmanager
    def oneshot(self) -> Iterator[None]:
        yield

    def ppid(self) -> int:
        return self._parent.pid if self._parent else 1

    def environ(self) -> dict[str, str]:
        return self._environ

    def create_time(self) -> float:
        return self._created_s

    def cpu_times(self) -> Any:
        self._check()
        times = {"user": self.cpu_s * 0.75, "system": self.cpu_s * 0.25}
        ended = {"children_user": self.reaped_s, "children_system": 0.0}
        return psutil.Process().cpu_times()._replace(**times, **ended)

    def memory_info(self) -> Any:
        self._check()
        return psutil.Process().memory_info()._replace(rss=self.pid * BYTES_PER_MIB)

    def memory_full_info(self) -> Any:
        self._check()
        return SimpleNamespace(pss=self.pid * BYTES_PER_MIB)

    def end(self) -> None:
        """End, and be waited for by the parent."""
        assert self._parent is not None
        self._parent.reaped_s += self.cpu_s + self.reaped_s
        self.gone = True

    def children(self, recursive: bool) -> "list[FakeProcess]":
        assert recursive
        self._check()
        below = [grandchild for child in self._children for grandchild in child.children(recursive=True)]
        return [child for child in [*self._children, *below] if not child.gone]

    def _check(self) -> None:
        if self.gone:
            raise psutil.NoSuchProcess(self.pid)


@pytest.fixture
def launcher() -> FakeProcess:
    return FakeProcess(10)


@pytest.fixture
def ranks(launcher: FakeProcess) -> list[FakeProcess]:
    """Return two ranks below a launcher. Both ranks have used more CPU time than the launcher."""
    ranks = [FakeProcess(30, launcher, created_s=1.0), FakeProcess(20, launcher, created_s=2.0)]
    for rank in ranks:
        rank.cpu_s = 5.0
    return ranks


@pytest.fixture
def source(launcher: FakeProcess, ranks: list[FakeProcess]) -> CpuSource:
    source = CpuSource(2, cores=8, open_process=lambda pid: cast(psutil.Process, launcher))
    source.attach(launcher.pid)
    return source


def shares(source: CpuSource, t_s: float) -> list[float | None]:
    return [sample.util_pct for sample in source.sample(t_s)]


def test_keeps_the_contract_on_this_very_process():
    check_device_source(CpuSource(1))
    check_device_source(CpuSource(3))


def test_measures_the_work_of_a_real_process():
    source = CpuSource(1, cores=1)
    source.attach(os.getpid())
    (first,) = source.sample(0.0)
    end_s = time.process_time() + 0.1
    while time.process_time() < end_s:
        pass
    (second,) = source.sample(1.0)
    assert first.util_pct is None
    assert second.util_pct is not None
    assert 5 <= second.util_pct <= 100
    assert second.mem_used_mib is not None
    assert second.mem_used_mib > 1


def test_shares_are_of_the_cores_that_fall_to_a_rank(source: CpuSource, ranks: list[FakeProcess]):
    assert shares(source, 0.0) == [None, None]
    ranks[0].cpu_s += 1.0
    ranks[1].cpu_s += 0.2
    assert shares(source, 0.5) == [pytest.approx(50.0), pytest.approx(10.0)]
    ranks[1].cpu_s += 3.0
    assert shares(source, 1.0) == [0.0, pytest.approx(150.0)]


def test_memory_is_the_rank_s_own(source: CpuSource):
    assert [sample.mem_used_mib for sample in source.sample(0.0)] == [30.0, 20.0]


def test_with_a_limit_the_largest_process_counts_however_idle_it_is():
    child = "kept = b'x' * (96 << 20); print(flush=True); input()"
    code = f"import subprocess, sys; sum(range(2 * 10**7)); subprocess.run([sys.executable, '-c', {child!r}])"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as launcher:
        assert launcher.stdout is not None
        launcher.stdout.readline()
        source = CpuSource(1, memory_mib=500.0)
        source.attach(launcher.pid)
        (sample,) = source.sample(0.0)
        launcher.communicate(b"\n")
    assert sample.mem_used_mib is not None
    assert sample.mem_used_mib > 96.0


def peak_mib(root: Path, *readings: tuple[float, float, float, float, float]) -> float:
    """Return the peak after readings of VmData, VmRSS, VmHWM, VmSize and VmPeak, in MiB."""
    peaks, known = Peaks(), 0.0
    status = root / "proc" / "7" / "status"
    status.parent.mkdir(parents=True, exist_ok=True)
    for reading in readings:
        names = ("VmData", "VmRSS", "VmHWM", "VmSize", "VmPeak")
        rows = [f"{name}:\t{round(mib * 1024)} kB\n" for name, mib in zip(names, reading, strict=True)]
        status.write_text("Name:\tpython\n" + "".join(rows))
        found = data_memory(7, peaks, root)
        assert found is not None
        assert found.now_mib == reading[0]
        known = max(known, found.peak_mib or 0.0)
    return known


def test_a_peak_between_two_readings_shows_in_what_the_kernel_keeps(tmp_path: Path):
    before, after = (300.0, 350.0, 350.0, 700.0, 700.0), (300.0, 352.0, 385.0, 700.0, 730.0)
    assert peak_mib(tmp_path, before, after) == 330.0  # by what was resident, 333: two of that are files


def test_neither_a_start_nor_space_that_is_kept_free_counts_as_data(tmp_path: Path):
    start = (200.0, 186.0, 186.0, 900.0, 900.0)  # data as small beside resident memory as never again
    imported = [(790.0, 607.0, 607.0, 3000.0, 3000.0)] * 10
    kept_free = (799.0, 626.0, 682.0, 11000.0, 19000.0)  # 8,000 MiB for a moment, and a batch of 65 MiB
    assert peak_mib(tmp_path, start, *imported, kept_free) == 682.0 + 173.0


def test_memory_that_was_mapped_before_hides_no_later_peak(tmp_path: Path):
    shared, after = (300.0, 350.0, 350.0, 1200.0, 1200.0), (300.0, 350.0, 350.0, 700.0, 1200.0)
    assert peak_mib(tmp_path, shared, *[after] * 10, (300.0, 352.0, 385.0, 700.0, 1200.0)) == 385.0 - 52.0


def test_a_process_that_has_ended_has_no_memory(tmp_path: Path):
    assert data_memory(7, Peaks(), tmp_path) is None


def test_memory_of_helpers_counts_for_the_rank_above_them(source: CpuSource, ranks: list[FakeProcess]):
    FakeProcess(31, FakeProcess(32, ranks[0]))
    assert [sample.mem_used_mib for sample in source.sample(0.0)] == [30.0 + 31.0 + 32.0, 20.0]


@pytest.mark.parametrize("lives_s", [0.25, 0.8, 1.7])
def test_children_that_live_shortly_count_once(source: CpuSource, ranks: list[FakeProcess], lives_s: float):
    """One child after another keeps 1.68 of the rank's 4 cores busy, whether the source sees it or not."""
    child, ends_s, known = FakeProcess(100, ranks[0]), lives_s, []
    for tick in range(601):
        if tick / 20 >= ends_s:
            child.end()
            child, ends_s = FakeProcess(100 + tick, ranks[0]), ends_s + lives_s
        known.append(shares(source, tick / 20)[0])
        child.cpu_s += 1.68 / 20
    assert sum(share or 0.0 for share in known) / 600 == pytest.approx(42.0, abs=2.5)


def test_what_others_use_of_the_machine_is_measured(launcher: FakeProcess, ranks: list[FakeProcess]):
    busy_s = iter((100.0, 105.0, 105.0))
    others = OtherPrograms(cores=4, busy_s=lambda: next(busy_s))
    waited_s = {30: 0.0, 20: 0.0}
    source = CpuSource(
        2,
        cores=4,
        open_process=lambda pid: cast(psutil.Process, launcher),
        other_programs=others,
        read_threads=lambda pid: {"1": ThreadTimes(ran_s=0.0, waited_s=waited_s[pid])},
    )
    source.attach(launcher.pid)
    assert [(sample.others_pct, sample.delayed_pct) for sample in source.sample(0.0)] == [(None, None)] * 2
    ranks[0].cpu_s, launcher.cpu_s, waited_s[20] = ranks[0].cpu_s + 0.6, 0.4, 1.0
    known = source.sample(2.0)
    assert [sample.others_pct for sample in known] == [pytest.approx(50.0, abs=10.0)] * 2
    assert [sample.delayed_pct for sample in known] == [0.0, pytest.approx(40.0, abs=5.0)]
    assert [sample.others_pct for sample in source.sample(3.0)] == [pytest.approx(0.0, abs=10.0)] * 2


def test_the_probes_of_sibling_workers_are_no_other_programs():
    leader = FakeProcess(5)
    workers = [FakeProcess(6, leader), FakeProcess(7, leader)]
    own, sibling = (FakeProcess(pid, worker) for pid, worker in zip((20, 30), workers, strict=True))
    busy_s = iter((100.0, 107.0, 111.0))
    others = OtherPrograms(cores=4, busy_s=lambda: next(busy_s), team=cast(psutil.Process, leader))
    assert others.share_pct(0.0, 0.0) is None
    own.cpu_s, sibling.cpu_s, workers[0].cpu_s = 3.0, 2.0, 1.0
    assert others.share_pct(2.0, 3.0) == pytest.approx(12.5)  # 7 s of the machine, 6 s of the team
    FakeProcess(31, workers[1]).cpu_s = 4.0
    assert others.share_pct(4.0, 0.0) == pytest.approx(0.0)


def test_work_of_helpers_counts_for_the_rank_above_them(source: CpuSource, ranks: list[FakeProcess]):
    worker = FakeProcess(31, FakeProcess(32, ranks[0]))
    shares(source, 0.0)
    worker.cpu_s += 0.4
    assert shares(source, 0.5) == [pytest.approx(20.0), 0.0]


def test_a_numbered_rank_reads_its_own_however_busy_the_launcher_and_a_loader_are(launcher: FakeProcess):
    second = FakeProcess(12, launcher, LOCAL_RANK="1")
    first = FakeProcess(13, launcher, created_s=1.0, LOCAL_RANK="0")
    loader = FakeProcess(14, second, LOCAL_RANK="1")
    FakeProcess(15, launcher, created_s=2.0, LOCAL_RANK="0")  # a helper of the first rank, whose parent has ended
    launcher.cpu_s = loader.cpu_s = 9.0
    source = CpuSource(2, cores=2, open_process=lambda pid: cast(psutil.Process, launcher))
    source.attach(launcher.pid)
    shares(source, 0.0)
    for process in (launcher, first, second, loader):
        process.cpu_s += 0.1
    assert shares(source, 0.5) == [pytest.approx(20.0), pytest.approx(40.0)]


def test_a_second_process_is_found_when_the_tree_is_looked_up_again(launcher: FakeProcess):
    source = CpuSource(2, cores=2, open_process=lambda pid: cast(psutil.Process, launcher))
    source.attach(launcher.pid)
    source.sample(0.0)
    launcher.cpu_s, late = 0.1, FakeProcess(11, launcher, created_s=9.0)
    late.cpu_s = 0.1
    assert shares(source, 0.5) == [pytest.approx(20.0), None]
    assert shares(source, 1.0) == [0.0, None]
    late.cpu_s += 0.3
    assert shares(source, 1.5) == [0.0, pytest.approx(60.0)]


def test_a_process_that_has_ended_is_unknown_and_no_error(
    source: CpuSource, launcher: FakeProcess, ranks: list[FakeProcess]
):
    shares(source, 0.0)
    ranks[1].gone = True
    first, second = source.sample(0.5)
    assert first.util_pct == 0.0
    assert (second.util_pct, second.mem_used_mib) == (None, None)
    for process in (launcher, *ranks):
        process.gone = True
    assert shares(source, 2.0) == [None, None]


def test_ranks_are_followed_after_their_launcher_has_ended(
    source: CpuSource, launcher: FakeProcess, ranks: list[FakeProcess]
):
    shares(source, 0.0)
    launcher.gone = True
    ranks[0].cpu_s += 2.0
    assert shares(source, 1.0) == [pytest.approx(50.0), 0.0]


def test_a_root_that_was_never_there_is_unknown():
    def nobody(pid: int) -> psutil.Process:
        raise psutil.NoSuchProcess(pid)

    source = CpuSource(2, open_process=nobody)
    source.attach(4242)
    assert shares(source, 0.0) == [None, None]


def test_attaching_again_begins_afresh(source: CpuSource, launcher: FakeProcess):
    shares(source, 0.0)
    source.attach(launcher.pid)
    assert shares(source, 0.5) == [None, None]


@st.composite
def trees(draw: st.DrawFn) -> list[ProcessUsage]:
    count = draw(st.integers(1, 12))
    return [
        ProcessUsage(
            pid=100 + index,
            parent=100 + draw(st.integers(0, index - 1)) if index else 1,
            created_s=draw(st.floats(0, 100)),
            cpu_s=draw(st.floats(0, 1000)),
        )
        for index in range(count)
    ]


@given(tree=trees(), count=st.integers(1, 4))
def test_ranks_are_the_busiest_and_own_what_is_below_them(tree: list[ProcessUsage], count: int):
    ranks = find_ranks(tree, count)
    owners = find_owners(tree, ranks)
    by_pid = {process.pid: process for process in tree}
    others = [process.cpu_s for process in tree if process.pid not in ranks]
    assert len(ranks) == min(count, len(tree))
    assert min(by_pid[pid].cpu_s for pid in ranks) >= max(others, default=0)
    assert [by_pid[pid].created_s for pid in ranks] == sorted(by_pid[pid].created_s for pid in ranks)
    for process in tree:
        inherited = process.pid if process.pid in ranks else owners.get(process.parent)
        assert owners.get(process.pid) == inherited


times = st.builds(CpuTime, own_s=st.floats(0, 1e6), reaped_s=st.floats(0, 1e6))


@given(before=st.dictionaries(st.integers(1, 4), times), after=st.dictionaries(st.integers(1, 4), times))
def test_no_time_is_spent_backwards(before: dict[int, CpuTime], after: dict[int, CpuTime]):
    assert spent_s(before, after) >= 0.0
    assert spent_s(after, after) == 0.0


def test_a_child_that_has_ended_is_counted_once():
    before = {1: CpuTime(own_s=5.0), 2: CpuTime(own_s=3.0)}
    assert spent_s(before, {1: CpuTime(own_s=5.5, reaped_s=3.2)}) == pytest.approx(0.7)
    assert spent_s(before, {1: CpuTime(own_s=5.5)}) == pytest.approx(0.5)  # nobody waited for it
