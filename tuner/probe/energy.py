"""The power of a device over a window: by its own counter of energy, or from sampled power. Pure."""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from tuner.probe.result import DeviceSample, DeviceSummary
from tuner.probe.steady import Estimate
from tuner.probe.window import Window

COUNTER = "counter"
"""The card's own counter of energy, which misses nothing between two readings."""
RAPL = "rapl"
"""The processors' counter (powercap in the kernel), divided evenly among the ranks; other programs count, too."""
SAMPLED = "sampled_power"
"""Power that was sampled, where a card has no counter."""


class EnergyReading(NamedTuple):
    """A reading of a counter of energy."""

    t_s: float
    energy_j: float


def by_counter(samples: Sequence[DeviceSample]) -> Callable[[Window], Estimate] | None:
    """Return a function for the mean power of one device over a window, in watts, by its own counter of energy.

    None if the device has no counter, or if the counter stands still or falls.

    Each piece of a window counts by the seconds of training that it stands for.
    """
    readings = [EnergyReading(sample.t_s, sample.energy_j) for sample in samples if sample.energy_j is not None]
    falls = any(later.energy_j < earlier.energy_j for earlier, later in pairwise(readings))
    if falls or len(readings) < 2 or readings[-1].energy_j <= readings[0].energy_j:
        return None

    def power_w(window: Window) -> Estimate:
        """Return the mean power over a window."""
        trained_s = trained_ws = 0.0  # W s: the power of each piece times its seconds of training
        for piece in window.pieces():
            begin_s, end_s = max(piece.begin_s, readings[0].t_s), min(piece.end_s, readings[-1].t_s)
            if end_s > begin_s:
                piece_w = (_energy_at(readings, end_s) - _energy_at(readings, begin_s)) / (end_s - begin_s)
                trained_s += piece.trained_s
                trained_ws += piece.trained_s * piece_w
        return Estimate(trained_ws / trained_s if trained_s else None)

    return power_w


def _energy_at(readings: Sequence[EnergyReading], t_s: float) -> float:
    """Return a counter in joules at a time between its first and its last reading."""
    place = min(max(bisect_right(readings, t_s, key=attrgetter("t_s")), 1), len(readings) - 1)
    before, after = readings[place - 1 : place + 1]
    return before.energy_j + (after.energy_j - before.energy_j) * (t_s - before.t_s) / (after.t_s - before.t_s)


def per_joule(speed: Estimate, devices: Sequence[DeviceSummary], trained_s: float) -> Estimate:
    """Return the samples of all ranks for a joule of all devices; unknown if the energy of one device is unknown."""
    joules = sum(device.energy_j or 0.0 for device in devices)
    if not speed.mean or not joules or any(device.energy_j is None for device in devices):
        return Estimate()
    mean = speed.mean * trained_s / joules
    relative_error = sum(device.energy_se_j or 0.0 for device in devices) / joules  # all cards err alike
    return Estimate(mean, None if speed.error is None else mean * math.hypot(speed.error / speed.mean, relative_error))


def per_price(speed: Estimate, per_hour: float | None) -> Estimate:
    """Return the samples for one unit of the currency, at the price of all devices for an hour."""
    if speed.mean is None or per_hour is None:
        return Estimate()
    seconds = 3600.0 / per_hour  # for one unit of the currency
    return Estimate(speed.mean * seconds, None if speed.error is None else speed.error * seconds)
