"""Read the devices at a steady pace in one thread while a probe runs."""

import math
from threading import Event, Thread

from tuner.errors import DeviceError, DeviceLostError
from tuner.probe.protocols import Clock, DeviceSource
from tuner.probe.result import DeviceSample

MOST_MISSED = 20
"""Readings that may fail in a row before the devices count as lost: two seconds at the usual pace."""
STOP_S = 1.0
"""How long the end of a recording waits for a reading under way: one that hangs must not hold up the probe's end."""


class SamplingRecorder:
    """Reads `source` every `interval_s` seconds, at whole multiples of it from the origin, so that no error adds up.

    Ticks that pass while a reading is under way are skipped, so that readings never bunch. A reading that fails is
    missing; after `MOST_MISSED` in a row, or at once where a device is gone, the recording ends.
    """

    def __init__(self, source: DeviceSource, clock: Clock, interval_s: float, *, stop_s: float = STOP_S) -> None:
        self._stop_s = stop_s
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
        """Give the readings since `start`, oldest first. Raises what has broken the recording, if anything has."""
        if self._recording is None:
            return []
        if self._recording.error is not None:
            raise self._recording.error
        return list(self._recording.samples)

    @property
    def lost(self) -> str | None:
        """Why the devices cannot be read any more; None while they can."""
        return self._recording.lost if self._recording else None

    def stop(self) -> None:
        """End the recording at once; its readings remain. Harmless to repeat."""
        if self._recording is not None:
            self._recording.stopped.set()
            self._recording.thread.join(self._stop_s)


class _Recording:
    """One recording with its thread; samples are appended whole, so that a copy of the list is always consistent."""

    def __init__(self, source: DeviceSource, clock: Clock, interval_s: float, origin_s: float) -> None:
        self.samples: list[DeviceSample] = []
        self.lost: str | None = None
        self.error: Exception | None = None
        self.stopped = Event()
        self.thread = Thread(target=self._run, args=(source, clock, interval_s, origin_s), name="recorder", daemon=True)

    def _run(self, source: DeviceSource, clock: Clock, interval_s: float, origin_s: float) -> None:
        tick, missed = math.ceil((clock.now() - origin_s) / interval_s), 0
        try:
            while self.lost is None and not self.stopped.wait(origin_s + tick * interval_s - clock.now()):
                missed = 0 if self._read(source, clock.now() - origin_s, missed) else missed + 1
                tick = next_tick(tick, clock.now() - origin_s, interval_s)
        except Exception as error:  # noqa: BLE001  samples() raises it: a dead recorder must not pass for idle devices
            self.error = error

    def _read(self, source: DeviceSource, t_s: float, missed: int) -> bool:
        """Add a reading, after so many that failed; tell whether this one did not."""
        try:
            self.samples.extend(source.sample(t_s))
        except DeviceError as error:
            if isinstance(error, DeviceLostError) or missed + 1 >= MOST_MISSED:
                self.lost = str(error)
            return False
        return True


def next_tick(tick: int, elapsed_s: float, interval_s: float) -> int:
    """Give the number of the first tick after `tick` that still lies ahead when `elapsed_s` have passed."""
    return max(tick, math.floor(elapsed_s / interval_s)) + 1
