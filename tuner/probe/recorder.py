"""Read the devices at a steady pace in one thread while a probe runs."""

import math
from threading import Event, Thread

from tuner.probe.protocols import Clock, DeviceSource
from tuner.probe.result import DeviceSample


class SamplingRecorder:
    """Reads `source` every `interval_s` seconds, at whole multiples of it from the origin, so that no error adds up.

    Ticks that pass while a reading is under way are skipped, so that readings never bunch.
    """

    def __init__(self, source: DeviceSource, clock: Clock, interval_s: float) -> None:
        self._source = source
        self._clock = clock
        self._interval_s = interval_s
        self._recording: _Recording | None = None

    @property
    def source(self) -> DeviceSource:
        """What is read."""
        return self._source

    def start(self, pid: int, origin_s: float) -> None:
        """Begin a fresh recording of the probe with root process `pid`, its time 0 at `origin_s` on the clock."""
        self.stop()
        self._source.attach(pid)
        self._recording = _Recording(self._source, self._clock, self._interval_s, origin_s)
        self._recording.thread.start()

    def samples(self) -> list[DeviceSample]:
        """Give the readings since `start`, oldest first. Raises the DeviceError that ended the recording, if any."""
        if self._recording is None:
            return []
        if self._recording.error is not None:
            raise self._recording.error
        return list(self._recording.samples)

    def stop(self) -> None:
        """End the recording at once; its readings remain. Harmless to repeat."""
        if self._recording is not None:
            self._recording.stopped.set()
            self._recording.thread.join()


class _Recording:
    """One recording with its thread; samples are appended whole, so that a copy of the list is always consistent."""

    def __init__(self, source: DeviceSource, clock: Clock, interval_s: float, origin_s: float) -> None:
        self.samples: list[DeviceSample] = []
        self.error: Exception | None = None
        self.stopped = Event()
        self.thread = Thread(target=self._run, args=(source, clock, interval_s, origin_s), name="recorder", daemon=True)

    def _run(self, source: DeviceSource, clock: Clock, interval_s: float, origin_s: float) -> None:
        tick = math.ceil((clock.now() - origin_s) / interval_s)
        try:
            while not self.stopped.wait(origin_s + tick * interval_s - clock.now()):
                self.samples.extend(source.sample(clock.now() - origin_s))
                tick = next_tick(tick, clock.now() - origin_s, interval_s)
        except Exception as error:  # noqa: BLE001  samples() raises it: a dead recorder must not pass for idle devices
            self.error = error


def next_tick(tick: int, elapsed_s: float, interval_s: float) -> int:
    """Give the number of the first tick after `tick` that still lies ahead when `elapsed_s` have passed."""
    return max(tick, math.floor(elapsed_s / interval_s)) + 1
