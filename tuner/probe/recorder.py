"""Samples the devices at a steady pace while a probe runs, and tells how busy they were a moment ago."""

import math
from collections.abc import Sequence
from statistics import fmean
from threading import Event, Thread

from tuner.errors import DeviceError, DeviceLostError
from tuner.probe.protocols import Clock, DeviceSource
from tuner.probe.result import DeviceSample

MOST_MISSED = 20
"""The devices count as lost after this many failed samples in a row: two seconds at the usual pace."""
STOP_S = 1.0
"""The end of a recording waits at most this many seconds for the running sample, because a sample may hang."""


class SamplingRecorder:
    """Samples `source` every `interval_s` seconds, at multiples of `interval_s` after the origin: delays do not add up.

    A tick that passes while a sample is taken is skipped, so that samples never bunch. A failed sample is left out.
    The recording ends after `MOST_MISSED` failed samples in a row, or at once where a device is gone.
    """

    def __init__(self, source: DeviceSource, clock: Clock, interval_s: float, *, stop_s: float = STOP_S) -> None:
        self._stop_s = stop_s
        self._source = source
        self._clock = clock
        self._interval_s = interval_s
        self._recording: _Recording | None = None
        self._told = 0
        """How many samples `taken` has told."""

    @property
    def source(self) -> DeviceSource:
        """The devices that are sampled."""
        return self._source

    def start(self, pid: int, origin_s: float) -> None:
        """Begin a new recording of the probe with root process `pid`; its time 0 is `origin_s` on the clock."""
        self.stop()
        self._source.attach(pid)
        self._told = 0
        self._recording = _Recording(self._source, self._clock, self._interval_s, origin_s)
        self._recording.thread.start()

    def samples(self) -> list[DeviceSample]:
        """Return the samples since `start`, oldest first. Raises the error that has ended the recording, if any."""
        if self._recording is None:
            return []
        if self._recording.error is not None:
            raise self._recording.error
        return list(self._recording.samples)

    def taken(self) -> tuple[float | None, ...]:
        """Return the mean utilisation of each device since the last call, in percent; empty without a new sample."""
        samples = self.samples()
        new, self._told = samples[self._told :], len(samples)
        return busy_pct(new, len(self._source.devices))

    @property
    def lost(self) -> str | None:
        """Why the devices cannot be sampled any more; None while they can."""
        return self._recording.lost if self._recording else None

    def stop(self) -> None:
        """End the recording at once; its samples remain. Harmless to repeat."""
        if self._recording is not None:
            self._recording.stopped.set()
            self._recording.thread.join(self._stop_s)


class _Recording:
    """One recording with its thread. The thread appends whole samples, so a copy of the list is always consistent."""

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
        """Take a sample; return whether it succeeded. `missed` is the number of failed samples just before it."""
        try:
            self.samples.extend(source.sample(t_s))
        except DeviceError as error:
            if isinstance(error, DeviceLostError) or missed + 1 >= MOST_MISSED:
                self.lost = str(error)
            return False
        return True


def next_tick(tick: int, elapsed_s: float, interval_s: float) -> int:
    """Return the number of the first tick after `tick` that still lies ahead when `elapsed_s` seconds have passed."""
    return max(tick, math.floor(elapsed_s / interval_s)) + 1


def busy_pct(samples: Sequence[DeviceSample], devices: int) -> tuple[float | None, ...]:
    """Return the mean utilisation of each device in percent; empty without a sample."""
    known = [(one.device, one.util_pct) for one in samples if one.util_pct is not None]
    shares = [[share for device, share in known if device == place] for place in range(devices)]
    return tuple(fmean(own) if own else None for own in shares) if samples else ()
