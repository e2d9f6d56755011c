from collections.abc import Iterator, Mapping
from threading import Event, Semaphore

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests_replays import FakeClock

from tuner.errors import DeviceError, DeviceLostError
from tuner.probe.probe_plan import Device, MonotonicClock
from tuner.probe.result import DeviceSample
from tuner.probe.series import SamplingRecorder, next_tick

PATIENCE_S = 30.0
"""How long a test waits for the recorder's thread before it fails."""


class CountedSource:
    """Two devices. A test can wait for measurements, and can let measurements fail by their number, from 1."""

    label = "counted"
    devices = (Device(name="cpu:0", model="fake"), Device(name="cpu:1", model="fake"))

    def __init__(self, errors: Mapping[int, Exception] | None = None) -> None:
        self.pids: list[int] = []
        self.readings = 0
        self._errors = errors or {}
        self._taken = Semaphore(0)

    def attach(self, pid: int) -> None:
        self.pids.append(pid)

    def sample(self, t_s: float) -> list[DeviceSample]:
        self.readings += 1
        self._taken.release()
        if error := self._errors.get(self.readings):
            raise error
        return [DeviceSample(t_s=t_s, device=device, util_pct=float(self.readings)) for device in range(2)]

    def wait_for(self, readings: int) -> None:
        for _ in range(readings):
            assert self._taken.acquire(timeout=PATIENCE_S)


@pytest.fixture
def source() -> CountedSource:
    return CountedSource()


@pytest.fixture
def recorder(source: CountedSource) -> Iterator[SamplingRecorder]:
    recorder = SamplingRecorder(source, MonotonicClock(), interval_s=0.002)
    yield recorder
    recorder.stop()


def test_records_every_device_again_and_again_in_order_of_time(source: CountedSource, recorder: SamplingRecorder):
    recorder.start(pid=42, origin_s=MonotonicClock().now())
    source.wait_for(5)
    recorder.stop()

    samples = recorder.samples()

    assert source.pids == [42]
    assert [sample.device for sample in samples] == [0, 1] * source.readings
    assert [sample.util_pct for sample in samples[::2]] == [float(n + 1) for n in range(source.readings)]
    assert sorted(sample.t_s for sample in samples) == [sample.t_s for sample in samples]
    assert samples[0].t_s >= 0


def test_times_are_counted_from_the_origin(source: CountedSource):
    recorder = SamplingRecorder(source, FakeClock(now_s=107.5), interval_s=0.5)
    recorder.start(pid=1, origin_s=100.0)
    source.wait_for(1)
    recorder.stop()
    assert {sample.t_s for sample in recorder.samples()} == {7.5}


def test_stop_does_not_wait_for_the_next_tick_and_keeps_the_readings(source: CountedSource):
    recorder = SamplingRecorder(source, FakeClock(), interval_s=3600.0)
    recorder.start(pid=1, origin_s=0.0)
    source.wait_for(1)
    recorder.stop()
    recorder.stop()
    assert len(recorder.samples()) == 2


def test_what_was_taken_is_told_once(source: CountedSource):
    recorder = SamplingRecorder(source, FakeClock(), interval_s=3600.0)
    recorder.start(pid=1, origin_s=0.0)
    source.wait_for(1)
    recorder.stop()
    assert [recorder.take_utilisation(), recorder.take_utilisation()] == [(1.0, 1.0), ()]


def test_fresh_samples_come_once_and_stay_in_the_recording(source: CountedSource):
    recorder = SamplingRecorder(source, FakeClock(), interval_s=3600.0)
    recorder.start(pid=1, origin_s=0.0)
    source.wait_for(1)
    recorder.stop()
    assert [len(recorder.take_new()), len(recorder.take_new()), len(recorder.samples())] == [2, 0, 2]


def recorded(source: CountedSource, readings: int) -> SamplingRecorder:
    recorder = SamplingRecorder(source, MonotonicClock(), interval_s=0.001)
    recorder.start(pid=1, origin_s=MonotonicClock().now())
    source.wait_for(readings)
    recorder.stop()
    return recorder


FAILED = DeviceError("cuda:1 does not answer")


def test_a_reading_that_fails_is_missing_and_the_recording_goes_on():
    failing = [
        1,
        *range(3, 2 + SamplingRecorder.MOST_MISSED),
        *range(5 + SamplingRecorder.MOST_MISSED, 4 + 2 * SamplingRecorder.MOST_MISSED),
    ]
    source = CountedSource(dict.fromkeys(failing, FAILED))
    recorder = recorded(source, 5 + 2 * SamplingRecorder.MOST_MISSED)
    known = [sample.util_pct for sample in recorder.samples()[::2]]
    assert known == [float(number) for number in range(1, source.readings + 1) if number not in failing]
    assert recorder.lost is None


def test_devices_that_stay_unreadable_are_lost_and_what_was_read_is_kept():
    source = CountedSource(dict.fromkeys(range(3, 1000), FAILED))
    recorder = recorded(source, 2 + SamplingRecorder.MOST_MISSED)
    assert recorder.lost == "cuda:1 does not answer"
    assert source.readings == 2 + SamplingRecorder.MOST_MISSED
    assert [sample.util_pct for sample in recorder.samples()[::2]] == [1.0, 2.0]


def test_a_device_that_is_gone_is_lost_at_once():
    source = CountedSource({3: DeviceLostError("cuda:1 is gone")})
    assert recorded(source, 3).lost == "cuda:1 is gone"
    assert source.readings == 3


def test_a_reading_that_hangs_does_not_hold_up_the_end():
    hangs, goes_on, returned = Event(), Event(), Event()

    class Hanging(CountedSource):
        def sample(self, t_s: float) -> list[DeviceSample]:
            if self.readings == 2:
                hangs.set()
                goes_on.wait(PATIENCE_S)
                returned.set()
            return super().sample(t_s)

    recorder = SamplingRecorder(Hanging(), MonotonicClock(), interval_s=0.001, stop_s=0.01)
    recorder.start(pid=1, origin_s=MonotonicClock().now())
    assert hangs.wait(PATIENCE_S)
    recorder.stop()
    assert not returned.is_set()
    assert [sample.util_pct for sample in recorder.samples()[::2]] == [1.0, 2.0]
    goes_on.set()


def test_a_recorder_that_breaks_does_not_pass_for_idle_devices():
    recorder = recorded(CountedSource({3: ZeroDivisionError()}), 3)
    with pytest.raises(ZeroDivisionError):
        recorder.samples()


def test_without_a_start_there_are_no_samples(source: CountedSource, recorder: SamplingRecorder):
    recorder.stop()
    assert recorder.samples() == []
    assert recorder.source is source


@given(tick=st.integers(0, 10**6), late_s=st.floats(-0.001, 1000.0), interval_s=st.floats(0.01, 10.0))
def test_the_next_tick_lies_ahead_and_skips_no_more_than_it_must(tick: int, late_s: float, interval_s: float):
    elapsed_s = tick * interval_s + late_s
    following = next_tick(tick, elapsed_s, interval_s)
    tolerance_s = 1e-9 * max(1.0, elapsed_s)
    assert following > tick
    assert following * interval_s > elapsed_s - tolerance_s
    assert following == tick + 1 or (following - 1) * interval_s <= elapsed_s + tolerance_s
