"""The power of a device over a window: by its own counter of energy, or from sampled power. Pure."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from operator import itemgetter

from tuner.probe.result import DeviceSample, DeviceSummary
from tuner.probe.steady import Estimate
from tuner.probe.window import Window

COUNTER = "counter"
"""The card's own counter of energy, which misses nothing between two readings."""
RAPL = "rapl"
"""The processors' counter (powercap in the kernel), divided evenly among the ranks; other programs count, too."""
SAMPLED = "sampled_power"
"""Power that was sampled, where a card has no counter."""


def by_counter(samples: Sequence[DeviceSample]) -> Callable[[Window], Estimate] | None:
    """Return what gives the mean power of one device over a window, in watts, by its own counter of energy.

    None where the device has no counter, or one that stands still.

    Each piece of a window counts by the seconds of training that it stands for.
    """
    known = [(sample.t_s, sample.energy_j) for sample in samples if sample.energy_j is not None]
    falls = any(later < before for (_, before), (_, later) in pairwise(known))
    if falls or len(known) < 2 or known[-1][1] <= known[0][1]:
        return None

    def power_w(window: Window) -> Estimate:
        """Return the mean power over a window."""
        parts: list[tuple[float, float]] = []
        for piece in window.pieces():
            begin_s, end_s = max(piece.begin_s, known[0][0]), min(piece.end_s, known[-1][0])
            if end_s > begin_s:
                parts.append((piece.trained_s, (_at(known, end_s) - _at(known, begin_s)) / (end_s - begin_s)))
        trained_s = sum(part_s for part_s, _ in parts)
        return Estimate(sum(part_s * part_w for part_s, part_w in parts) / trained_s if trained_s else None)

    return power_w


def _at(known: Sequence[tuple[float, float]], t_s: float) -> float:
    """Return a counter in joules at a time between its first and its last reading."""
    place = min(max(bisect_right(known, t_s, key=itemgetter(0)), 1), len(known) - 1)
    (before_s, before_j), (after_s, after_j) = known[place - 1 : place + 1]
    return before_j + (after_j - before_j) * (t_s - before_s) / (after_s - before_s)


def per_joule(speed: Estimate, devices: Sequence[DeviceSummary], trained_s: float) -> Estimate:
    """Return the samples of all ranks for a joule of all devices; unknown where that of one device is unknown."""
    energies = [(device.energy_j, device.energy_se_j) for device in devices]
    joules = sum(energy or 0.0 for energy, _ in energies)
    if not speed.mean or not joules or any(energy is None for energy, _ in energies):
        return Estimate()
    mean = speed.mean * trained_s / joules
    share = sum(error_j or 0.0 for _, error_j in energies) / joules
    return Estimate(mean, None if speed.error is None else mean * ((speed.error / speed.mean) ** 2 + share**2) ** 0.5)


def per_price(speed: Estimate, per_hour: float | None) -> Estimate:
    """Return the samples for one unit of the currency, at the price of all devices for an hour."""
    if speed.mean is None or per_hour is None:
        return Estimate()
    by = 3600.0 / per_hour
    return Estimate(speed.mean * by, None if speed.error is None else speed.error * by)
