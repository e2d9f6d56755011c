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
    The recording ends after `MOST_MISSED` failed samples in a row, or at once where a device is gone. A recorder
    records one probe. Its thread appends whole samples, so a copy of the list is always consistent.
    """

    def __init__(self, source: DeviceSource, clock: Clock, interval_s: float, *, stop_s: float = STOP_S) -> None:
        self.source = source
        """The devices that are sampled."""
        self._clock, self._interval_s, self._stop_s = clock, interval_s, stop_s
        self._samples: list[DeviceSample] = []
        self._told = 0
        """How many samples `taken` has told."""
        self.lost: str | None = None
        """Why the devices cannot be sampled any more; None while they can."""
        self._error: Exception | None = None
        self._stopped = Event()
        self._thread: Thread | None = None

    def start(self, pid: int, origin_s: float) -> None:
        """Begin to record the probe with root process `pid`; time 0 is `origin_s` on the clock."""
        self.source.attach(pid)
        self._thread = Thread(target=self._run, args=(origin_s,), name="recorder", daemon=True)
        self._thread.start()

    def samples(self) -> list[DeviceSample]:
        """Return the samples since `start`, oldest first. Raises the error that has ended the recording, if any."""
        if self._error is not None:
            raise self._error
        return list(self._samples)

    def taken(self) -> tuple[float | None, ...]:
        """Return the mean utilisation of each device since the last call, in percent; empty without a new sample."""
        samples = self.samples()
        new, self._told = samples[self._told :], len(samples)
        return busy_pct(new, len(self.source.devices))

    def stop(self) -> None:
        """End the recording at once; its samples remain. Harmless to repeat."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(self._stop_s)

    def _run(self, origin_s: float) -> None:
        clock, interval_s = self._clock, self._interval_s
        tick, missed = math.ceil((clock.now() - origin_s) / interval_s), 0
        try:
            while self.lost is None and not self._stopped.wait(origin_s + tick * interval_s - clock.now()):
                missed = 0 if self._read(clock.now() - origin_s, missed) else missed + 1
                tick = next_tick(tick, clock.now() - origin_s, interval_s)
        except Exception as error:  # noqa: BLE001  samples() raises it: a dead recorder must not pass for idle devices
            self._error = error

    def _read(self, t_s: float, missed: int) -> bool:
        """Take a sample; return whether it succeeded. `missed` is the number of failed samples just before it."""
        try:
            self._samples.extend(self.source.sample(t_s))
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
