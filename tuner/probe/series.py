"""The devices of a probe over time: sampled at a steady pace, and kept as one CSV file in its folder."""

import csv
import math
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from io import TextIOWrapper
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from threading import Event, Thread
from typing import Any, NamedTuple, TypeVar

from tuner.errors import DeviceError, DeviceLostError
from tuner.probe.probe_plan import Clock, Device, DeviceSource
from tuner.probe.quantities import of_known
from tuner.probe.result import DeviceSample
from tuner.probe.window import Mark, Window
from tuner.study import open_anew, open_regular

_Item = TypeVar("_Item")


class SamplingRecorder:
    """Samples `source` every `interval_s` seconds, at multiples of `interval_s` after the origin: delays do not add up.

    A tick that passes while a sample is taken is skipped, so that samples never bunch. A failed sample is left out.
    The recording ends after `MOST_MISSED` failed samples in a row, or at once if a device is gone. A recorder records
    one probe. Its thread appends whole samples, so a copy of the list is always consistent.
    """

    MOST_MISSED = 20
    """The devices count as lost after this many failed samples in a row: two seconds at the usual pace."""

    def __init__(self, source: DeviceSource, clock: Clock, interval_s: float, *, stop_s: float = 1.0) -> None:
        """Record samples of devices, in a thread that `start` begins.

        Args:
            source: The devices.
            clock: Says when a sample is due.
            interval_s: The seconds from one sample to the next.
            stop_s: The seconds that the end of the recording waits for a running sample, because a sample may hang.
        """
        self.source = source
        """The devices that are sampled."""
        self._clock, self._interval_s, self._stop_s = clock, interval_s, stop_s
        self._samples: list[DeviceSample] = []
        self._taken_count = 0
        """How many samples `take_new` has returned."""
        self.lost: str | None = None
        """Why the devices cannot be sampled any more; None while they can."""
        self._error: Exception | None = None
        """The error that has ended the recording; None without one."""
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

    def take_new(self) -> list[DeviceSample]:
        """Return the samples since the last call. Raises the error that has ended the recording, if any."""
        new = self.samples()[self._taken_count :]
        self._taken_count += len(new)
        return new

    def take_utilisation(self) -> tuple[float | None, ...]:
        """Return the mean utilisation of each device in the samples of `take_new`, in percent; empty without any."""
        return busy_pct(self.take_new(), len(self.source.devices))

    def stop(self) -> None:
        """End the recording at once; its samples remain. Harmless to repeat."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(self._stop_s)

    def _run(self, origin_s: float) -> None:
        """Take a sample at each tick, the multiples of the interval after the origin, until the recording ends."""
        clock, interval_s = self._clock, self._interval_s
        tick, missed = math.ceil((clock.now() - origin_s) / interval_s), 0
        try:
            while self.lost is None and not self._stopped.wait(origin_s + tick * interval_s - clock.now()):
                try:
                    self._samples.extend(self.source.sample(clock.now() - origin_s))
                    missed = 0
                except DeviceError as error:
                    missed += 1
                    if isinstance(error, DeviceLostError) or missed >= self.MOST_MISSED:
                        self.lost = str(error)
                tick = next_tick(tick, clock.now() - origin_s, interval_s)
        except Exception as error:  # noqa: BLE001  samples() raises it: a dead recorder must not pass for idle devices
            self._error = error


def next_tick(tick: int, elapsed_s: float, interval_s: float) -> int:
    """Return the number of the first tick after `tick` that is still to come, `elapsed_s` seconds after the origin."""
    return max(tick, math.floor(elapsed_s / interval_s)) + 1


def busy_pct(samples: Sequence[DeviceSample], devices: int) -> tuple[float | None, ...]:
    """Return the mean utilisation of each of `devices` devices in percent; empty without a sample."""
    shares_by_device = [[sample.util_pct for sample in samples if sample.device == place] for place in range(devices)]
    return tuple(of_known(fmean, shares) for shares in shares_by_device) if samples else ()


SERIES_FILE = "devices.csv"
"""The name of the file in a probe's folder."""
MOST_ROWS = 1200
"""A device has at most this many rows: two minutes at ten samples a second. Samples of longer probes are averaged.

So the file of two cards has at most about 150 kB.
"""
MEASURED = ("util_pct", "sm_pct", "occupancy_pct", "tensor_pct", "dram_pct", "power_w", "mem_used_mib")
"""The columns after `t_s`, `device`, `iterations` and `window`; they are fields of `DeviceSample`."""


class SeriesRow(NamedTuple):
    """A reading of one device at one moment."""

    t_s: float
    """Seconds since the probe started."""
    device: str
    iterations: int
    """The iterations that all ranks had finished."""
    in_window: bool
    measured: dict[str, float]
    """One of `MEASURED` → its value; a value that nobody measured is missing."""


class Curve(NamedTuple):
    """A quantity over time."""

    times_s: list[float]
    values: list[float]


class DeviceSeries(NamedTuple):
    """The readings of a probe, sorted by time."""

    readings: tuple[SeriesRow, ...]

    @property
    def devices(self) -> tuple[str, ...]:
        """The names of the devices, in rank order."""
        return tuple(dict.fromkeys(reading.device for reading in self.readings))

    @property
    def marks_s(self) -> tuple[float, ...]:
        """When iterations ended, to within the time between two readings."""
        return tuple(later.t_s for before, later in pairwise(self.readings) if later.iterations > before.iterations)

    @property
    def window_s(self) -> tuple[float, float] | None:
        """When the window began and ended; None if the probe has no window."""
        inside = [reading.t_s for reading in self.readings if reading.in_window]
        return (inside[0], inside[-1]) if inside else None

    def curve(self, device: str, quantity: str, most: int = MOST_ROWS) -> Curve:
        """Return one quantity of `MEASURED` on one device over time.

        Neighbouring readings are averaged, so that there are at most `most` values.
        """
        known = [reading for reading in self.readings if reading.device == device and quantity in reading.measured]
        parts = _parts(known, most)
        means = [round(fmean(reading.measured[quantity] for reading in part), 1) for part in parts]
        return Curve([part[-1].t_s for part in parts], means)


def _parts(items: Sequence[_Item], most: int) -> list[Sequence[_Item]]:
    """Return items cut into at most `most` parts of neighbours, all equally long but the last."""
    length = max(1, math.ceil(len(items) / most))
    return [items[begin : begin + length] for begin in range(0, len(items), length)]


def write_series(
    folder: Path,
    samples: Sequence[DeviceSample],
    devices: Sequence[Device],
    *,
    marks: Sequence[Mark],
    window: Window | None,
) -> None:
    """Write the samples of a probe, sorted by time, to `SERIES_FILE` in the probe's folder.

    A device has at most `MOST_ROWS` rows, so neighbours are averaged. A trainer may have put a link there; it is
    replaced. If the file cannot be written, there is none: the result of the probe counts more.

    Args:
        folder: The probe's folder.
        samples: The samples of all devices, sorted by time.
        devices: In the order of `DeviceSample.device`.
        marks: The ends of the iterations.
        window: The window that was evaluated; None without one.
    """
    iteration_ends_s = sorted(mark.t_s for mark in marks)
    rows: list[list[Any]] = []
    for position, device in enumerate(devices):
        for neighbours in _parts([sample for sample in samples if sample.device == position], MOST_ROWS):
            t_s = neighbours[-1].t_s
            in_window = window is not None and window.first.t_s < t_s <= window.last.t_s
            means = (_mean(neighbours, name) for name in MEASURED)
            rows.append([round(t_s, 2), device.name, bisect_right(iteration_ends_s, t_s), int(in_window), *means])
    if not rows:
        return
    rows.sort(key=itemgetter(0))
    with suppress(OSError), TextIOWrapper(open_anew(folder / SERIES_FILE), encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerows([["t_s", "device", "iterations", "window", *MEASURED], *rows])


def read_series(folder: Path) -> DeviceSeries | None:
    """Return the series in a probe's folder; None if there is none.

    Lines that the tuner cannot have written are left out: a trainer may write into the folder, too.
    """
    try:
        with open_regular(folder / SERIES_FILE, follow=False) as file:
            text = file.read().decode(errors="replace")
    except OSError:
        return None
    readings: list[SeriesRow] = []
    lines = [line for line in text.replace("\0", "").splitlines() if len(line) < 1000]  # the tuner writes about 100
    for row in csv.DictReader(lines, quoting=csv.QUOTE_NONE):
        with suppress(KeyError, TypeError, ValueError):
            reading = SeriesRow(
                t_s=float(row["t_s"]),
                device=row["device"],
                iterations=int(row["iterations"]),
                in_window=row["window"] == "1",
                measured={name: float(row[name]) for name in MEASURED if row[name]},
            )
            if all(map(math.isfinite, (reading.t_s, *reading.measured.values()))):
                readings.append(reading)
    return DeviceSeries(readings=tuple(readings)) if readings else None


def _mean(samples: Sequence[DeviceSample], name: str) -> float | None:
    """Return the mean of the field `name` over some samples, for memory the largest value; None if none is known."""
    value = of_known(max if name == "mem_used_mib" else fmean, (getattr(sample, name) for sample in samples))
    return None if value is None else round(value, 1)
