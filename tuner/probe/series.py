"""What the devices of a probe showed over time, as one CSV file in the probe's folder."""

import csv
import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from tuner.probe.probe_plan import Device
from tuner.probe.result import DeviceSample
from tuner.probe.window import Mark, Window

SERIES_FILE = "devices.csv"
"""The name of the file in a probe's folder."""
MOST_ROWS = 1200
"""A device has at most this many rows: two minutes at ten samples a second. Samples of longer probes are averaged.

So the file of two cards has at most about 150 kB.
"""
MEASURED = ("util_pct", "sm_pct", "occupancy_pct", "tensor_pct", "dram_pct", "power_w", "mem_used_mib")
"""The columns after `t_s`, `device`, `iterations` and `window`; they are fields of `DeviceSample`."""
_PLACE = ("t_s", "device", "iterations", "window")


@dataclass(frozen=True, kw_only=True, slots=True)
class SeriesRow:
    """What one device showed at one moment; a number that nobody measured is missing from `measured`."""

    t_s: float
    """Seconds since the probe started."""
    device: str
    iterations: int
    """The iterations that all ranks had finished."""
    in_window: bool
    measured: dict[str, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceSeries:
    """The readings of a probe, sorted by time."""

    readings: tuple[SeriesRow, ...]

    @property
    def devices(self) -> tuple[str, ...]:
        """The names of the devices, in rank order."""
        return tuple(dict.fromkeys(one.device for one in self.readings))

    @property
    def marks_s(self) -> tuple[float, ...]:
        """When iterations ended, to within the time between two readings."""
        return tuple(later.t_s for before, later in pairwise(self.readings) if later.iterations > before.iterations)

    @property
    def window_s(self) -> tuple[float, float] | None:
        """When the window began and ended; None where the probe has no window."""
        inside = [one.t_s for one in self.readings if one.in_window]
        return (inside[0], inside[-1]) if inside else None

    def of(self, device: str, quantity: str, most: int = MOST_ROWS) -> tuple[list[float], list[float]]:
        """Return the times and the values of one quantity of `MEASURED` on one device.

        Of more than `most` readings, those that follow each other are averaged.
        """
        known = [one for one in self.readings if one.device == device and quantity in one.measured]
        every = max(1, math.ceil(len(known) / most))
        parts = [known[begin : begin + every] for begin in range(0, len(known), every)]
        means = [round(fmean(one.measured[quantity] for one in part), 1) for part in parts]
        return [part[-1].t_s for part in parts], means


def write_series(
    folder: Path,
    samples: Sequence[DeviceSample],
    devices: Sequence[Device],
    *,
    marks: Sequence[Mark],
    window: Window | None,
) -> None:
    """Write the samples of a probe, sorted by time, to `SERIES_FILE` in the probe's folder.

    A file that cannot be written is left out: the result of the probe counts more.
    """
    rows = sorted(_rows(samples, devices, marks, window), key=lambda row: row[:2])
    if not rows:
        return
    with suppress(OSError), (folder / SERIES_FILE).open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow([*_PLACE, *MEASURED])
        table.writerows([t_s, devices[position].name, *rest] for t_s, position, rest in rows)


def read_series(folder: Path) -> DeviceSeries | None:
    """Return the series in a probe's folder; None where there is none. Lines that are not whole are left out."""
    try:
        text = (folder / SERIES_FILE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    readings = tuple(_readings(csv.DictReader(text.replace("\0", "").splitlines())))
    return DeviceSeries(readings=readings) if readings else None


def _readings(rows: Iterable[dict[str, str]]) -> Iterator[SeriesRow]:
    for row in rows:
        with suppress(KeyError, TypeError, ValueError, AttributeError):
            yield SeriesRow(
                t_s=_finite(row["t_s"]),
                device=row["device"],
                iterations=int(row["iterations"]),
                in_window=row["window"] == "1",
                measured={name: _finite(row[name]) for name in MEASURED if row[name]},
            )


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _rows(
    samples: Sequence[DeviceSample], devices: Sequence[Device], marks: Sequence[Mark], window: Window | None
) -> Iterator[tuple[float, int, list[float | str]]]:
    ends_s = sorted(mark.t_s for mark in marks)
    for position in range(len(devices)):
        own = [one for one in samples if one.device == position]
        every = max(1, math.ceil(len(own) / MOST_ROWS))
        for begin in range(0, len(own), every):
            part = own[begin : begin + every]
            t_s = part[-1].t_s
            inside = window is not None and window.first.t_s < t_s <= window.last.t_s
            measured = (_over(part, name) for name in MEASURED)
            yield round(t_s, 2), position, [bisect_right(ends_s, t_s), int(inside), *measured]


def _over(samples: Sequence[DeviceSample], name: str) -> float | str:
    """Return the mean of a quantity over some samples, or the largest where the quantity is memory."""
    known = [value for one in samples if (value := getattr(one, name)) is not None]
    if not known:
        return ""
    return round(max(known) if name == "mem_used_mib" else fmean(known), 1)
