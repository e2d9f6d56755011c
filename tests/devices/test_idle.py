import math
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests_devices import FakeGpu, FakeNvml
from tests_replays import FakeClock

from tuner.devices.cards import (
    IDLE_UTIL_PCT,
    SLACK_MIB,
    TOLERATED_SHARE,
    Cards,
    Occupancy,
    Occupant,
    obstacles,
    wait_until_idle,
)
from tuner.devices.drivers import Nvml, NvmlSource
from tuner.devices.found import device_variables, open_devices
from tuner.errors import DeviceError, DeviceLostError
from tuner.probe.probe_plan import Device, MonotonicClock
from tuner.probe.result import Failure, FailureKind

TOTAL_MIB = 100_000.0
FREE = Occupancy(
    device=Device(name="cuda:0", model="card", uuid="GPU-a", mem_total_mib=TOTAL_MIB), mem_used_mib=600.0, util_pct=0.0
)
OTHER = replace(FREE, device=replace(FREE.device, name="cuda:1", uuid="GPU-b"))
DESKTOP = Occupant(pid=10, mem_mib=900.0)
HOG = Occupant(pid=4711, mem_mib=20_000.0)


def rules(now: Occupancy, at_start: Occupancy = FREE) -> list[str]:
    return [obstacle.rule for obstacle in obstacles([now], [at_start])]


def test_a_card_as_it_was_is_free() -> None:
    assert rules(FREE) == []
    assert rules(replace(FREE, mem_used_mib=600.0 + SLACK_MIB, util_pct=IDLE_UTIL_PCT)) == []


def test_a_process_that_came_later_keeps_a_card_busy_however_little_it_holds() -> None:
    assert rules(replace(FREE, occupants=(Occupant(pid=7, mem_mib=1.0),))) == ["foreign process"]
    assert rules(replace(FREE, occupants=(Occupant(pid=7),))) == ["foreign process"]


def test_a_process_that_was_there_is_tolerated_while_it_holds_little_and_does_nothing() -> None:
    before = replace(FREE, mem_used_mib=1500.0, occupants=(DESKTOP,))
    assert rules(before, before) == []
    assert rules(replace(before, util_pct=40.0), before) == ["utilisation"]
    assert rules(replace(before, occupants=(replace(DESKTOP, mem_mib=TOTAL_MIB / 2),)), before) == ["foreign process"]


def test_a_card_that_was_held_when_the_study_opened_is_not_taken_for_free() -> None:
    before = replace(FREE, mem_used_mib=20_600.0, occupants=(HOG,))
    assert rules(before, before) == ["foreign process", "memory"]
    hidden = replace(before, occupants=())
    assert rules(hidden, hidden) == ["memory"]


def test_what_the_driver_does_not_report_is_no_obstacle() -> None:
    unknown = Occupancy(device=replace(FREE.device, mem_total_mib=None))
    assert rules(unknown, unknown) == []


@given(
    base_mib=st.floats(0, TOTAL_MIB * TOLERATED_SHARE),
    less_mib=st.floats(0, TOTAL_MIB),
    more_mib=st.floats(0, TOTAL_MIB),
)
def test_more_memory_in_use_never_frees_a_card(base_mib: float, less_mib: float, more_mib: float) -> None:
    before = replace(FREE, mem_used_mib=base_mib)
    less, more = (replace(FREE, mem_used_mib=mib) for mib in sorted((less_mib, more_mib)))
    assert len(rules(less, before)) <= len(rules(more, before))
    assert rules(before, before) == []


class Script:
    """Cards in scripted states. Each state lasts until its time, the last one for ever."""

    def __init__(self, clock: FakeClock, *states: tuple[float, Occupancy]) -> None:
        self._clock = clock
        self._states = states

    def __call__(self) -> list[Occupancy]:
        known = [state for until_s, state in self._states if self._clock.now() < until_s]
        return [OTHER, known[0] if known else self._states[-1][1]]


def waited(
    clock: FakeClock, *states: tuple[float, Occupancy], interrupted: Callable[[], bool] = lambda: False
) -> Failure | None:
    return wait_until_idle(
        Script(clock, *states), [OTHER, FREE], limit_s=30.0, clock=clock, sleep=clock.advance, interrupted=interrupted
    )


def test_free_cards_are_not_waited_for() -> None:
    clock = FakeClock()
    assert waited(clock, (0.0, FREE)) is None
    assert wait_until_idle(tuple, (), limit_s=1, clock=clock, sleep=clock.advance, interrupted=lambda: True) is None
    assert clock.now() == 0.0


def test_memory_is_waited_for_until_it_is_back() -> None:
    clock = FakeClock()
    assert waited(clock, (2.0, replace(FREE, mem_used_mib=9_000.0, util_pct=30.0)), (9.0, FREE)) is None
    assert clock.now() == pytest.approx(2.0, abs=0.2)


def test_a_foreign_process_is_named_after_the_wait() -> None:
    clock = FakeClock()
    failure = waited(clock, (0.0, replace(FREE, mem_used_mib=20_600.0, occupants=(HOG, Occupant(pid=4712)))))
    assert failure is not None
    assert (failure.kind, failure.rule) == (FailureKind.GPU_BUSY, "foreign process")
    for words in (
        "cuda:0 (GPU-a) is used by pid 4711 (20,000 MiB), pid 4712 (unknown memory)",
        "20,600 MiB in use",
        "30 s",
    ):
        assert words in failure.detail
    assert clock.now() == pytest.approx(30.0, abs=0.2)


def test_memory_that_nobody_is_seen_to_hold_is_named() -> None:
    failure = waited(FakeClock(), (0.0, replace(FREE, mem_used_mib=9_000.0)))
    assert failure is not None
    assert failure.rule == "memory"
    assert "9,000 MiB in use; a free card has at most 856 MiB" in failure.detail


def test_the_user_need_not_wait() -> None:
    clock = FakeClock()
    busy = replace(FREE, occupants=(HOG,))
    failure = waited(clock, (0.0, busy), interrupted=lambda: clock.now() >= 3)
    assert failure is not None
    assert failure.kind is FailureKind.INTERRUPTED
    assert clock.now() == pytest.approx(3.0, abs=0.2)


def test_a_probe_s_own_remains_are_seen_through_nvml_until_they_are_gone() -> None:
    clock, gpu = FakeClock(), FakeGpu(uuid="GPU-a")
    nvml = Nvml(FakeNvml(gpu))
    cards = Cards(NvmlSource(nvml, ["GPU-a"]).devices, lambda: nvml)
    at_start = cards.occupancy()
    gpu.processes, gpu.mem_used_mib, gpu.util_pct = {7: 9_000}, 9_615, 80

    def sleep(seconds: float) -> None:
        clock.advance(seconds)
        if clock.now() > 1:
            gpu.processes, gpu.mem_used_mib = {}, 615
        if clock.now() > 2:
            gpu.util_pct = 0

    failure = wait_until_idle(
        cards.occupancy, at_start, limit_s=30.0, clock=clock, sleep=sleep, interrupted=lambda: False
    )
    assert failure is None
    assert clock.now() == pytest.approx(2.0, abs=0.2)


def test_what_is_left_of_an_earlier_probe_is_waited_for_without_cards_too() -> None:
    clock = FakeClock()

    def waited_for(seconds: float, interrupted: Callable[[], bool] = lambda: False) -> Failure | None:
        left_s = clock.now() + seconds
        return wait_until_idle(
            tuple,
            (),
            limit_s=30.0,
            clock=clock,
            sleep=clock.advance,
            interrupted=interrupted,
            still_running=lambda: "pid 7 (state D)" if clock.now() < left_s else None,
        )

    assert waited_for(2.0) is None
    assert clock.now() == pytest.approx(2.0, abs=0.2)
    detail = "pid 7 (state D) of an earlier probe cannot be killed; waited 30 s"
    assert waited_for(math.inf) == Failure(kind=FailureKind.GPU_BUSY, rule="own process", detail=detail)
    failure = waited_for(math.inf, interrupted=lambda: True)
    assert failure is not None
    assert failure.kind is FailureKind.INTERRUPTED


class Reading:
    """A card that fails so many times with this error before it can be read."""

    def __init__(self, error: DeviceError, times: float) -> None:
        self._error = error
        self._left = times

    def __call__(self) -> list[Occupancy]:
        self._left -= 1
        if self._left >= 0:
            raise self._error
        return [FREE]


@pytest.mark.parametrize(
    ("error", "times", "detail", "took_s"),
    [
        (DeviceError("cuda:0 does not answer"), 5, None, 0.5),
        (DeviceError("cuda:0 does not answer"), math.inf, "cuda:0 does not answer; waited 30 s", 30.0),
        (DeviceLostError("cuda:0 is gone"), math.inf, "cuda:0 is gone", 0.0),
    ],
)
def test_a_card_that_cannot_be_read_is_waited_for_unless_it_is_gone(
    error: DeviceError, times: float, detail: str | None, took_s: float
) -> None:
    clock, read = FakeClock(), Reading(error, times)
    failure = wait_until_idle(read, [FREE], limit_s=30.0, clock=clock, sleep=clock.advance, interrupted=lambda: False)
    assert clock.now() == pytest.approx(took_s, abs=0.2)
    assert failure == (None if detail is None else Failure(kind=FailureKind.GPU_LOST, rule="unreadable", detail=detail))


HOLD = """
import sys, torch
held = torch.empty(4 << 30, dtype=torch.uint8, device="cuda:0")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.gpu
def test_a_real_card_that_another_process_holds_is_busy_until_that_has_ended() -> None:
    devices = open_devices("0").devices
    cards, clock = Cards(devices), MonotonicClock()
    at_start = cards.occupancy()

    def idle(limit_s: float) -> Failure | None:
        return wait_until_idle(
            cards.occupancy, at_start, limit_s=limit_s, clock=clock, sleep=time.sleep, interrupted=lambda: False
        )

    assert idle(5.0) is None
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=device_variables(devices)
    ) as hog:
        assert hog.stdout
        assert hog.stdout.readline() == b"held\n"
        failure = idle(0.5)
        hog.communicate()
    assert failure is not None
    assert failure.kind is FailureKind.GPU_BUSY
    assert "MiB in use" in failure.detail
    assert idle(30.0) is None
