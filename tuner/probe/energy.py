"""The power of a device over a window: by its own counter of energy, or from sampled power. Pure."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

from tuner.probe.result import DeviceSample, DeviceSummary
from tuner.probe.steady import Block, standard_error, with_change
from tuner.probe.window import Window

COUNTER = "counter"
"""The card's own counter of energy, which misses nothing between two readings."""
RAPL = "rapl"
"""The processors' counter (powercap in the kernel), divided evenly among the ranks; other programs count, too."""
SAMPLED = "sampled_power"
"""Power that was sampled, where a card has no counter."""

PowerOf = Callable[[Window], float | None]
"""Returns the mean power over a window or a part of it, in watts; None where it is unknown."""


class Power(NamedTuple):
    """The mean power over a window in watts, its standard error, and what measured it."""

    mean_w: float
    error_w: float
    source: str

    @classmethod
    def over(cls, window: Window, spans: Sequence[Window], power_w: PowerOf, source: str) -> "Power | None":
        """Return the power over a window; None where it is unknown. The scatter over its spans gives the error."""
        mean_w = power_w(window)
        powers = [(span.trained_s, power_w(span)) for span in spans]
        error_w = standard_error([Block(span_s, span_w) for span_s, span_w in powers if span_w is not None])
        if mean_w is None or error_w is None:
            return None
        if window.last_level is not None:
            error_w = with_change(error_w, mean_w, power_w(window.last_level) or 0.0)
        return cls(mean_w, error_w, source)


def by_counter(samples: Sequence[DeviceSample]) -> PowerOf | None:
    """Return what gives the power of one device by its counter; None where it has none, or one that stands still.

    Each piece of a window counts by the seconds of training that it stands for.
    """
    known = [(sample.t_s, sample.energy_j) for sample in samples if sample.energy_j is not None]
    falls = any(later < before for (_, before), (_, later) in pairwise(known))
    if falls or len(known) < 2 or known[-1][1] <= known[0][1]:
        return None

    def power_w(window: Window) -> float | None:
        """Return the mean power over a window."""
        parts: list[tuple[float, float]] = []
        for piece in window.pieces():
            begin_s, end_s = max(piece.begin_s, known[0][0]), min(piece.end_s, known[-1][0])
            if end_s > begin_s:
                parts.append((piece.trained_s, (_at(known, end_s) - _at(known, begin_s)) / (end_s - begin_s)))
        trained_s = sum(part_s for part_s, _ in parts)
        return sum(part_s * part_w for part_s, part_w in parts) / trained_s if trained_s else None

    return power_w


def _at(known: Sequence[tuple[float, float]], t_s: float) -> float:
    """Return a counter in joules at a time between its first and its last reading."""
    place = min(max(bisect_right(known, t_s, key=itemgetter(0)), 1), len(known) - 1)
    (before_s, before_j), (after_s, after_j) = known[place - 1 : place + 1]
    return before_j + (after_j - before_j) * (t_s - before_s) / (after_s - before_s)


class Ratio(NamedTuple):
    """Samples for a unit of what they cost, and the standard error; None where it is unknown."""

    value: float | None = None
    error: float | None = None


def per_joule(
    samples_per_s: float | None, error: float | None, devices: Sequence[DeviceSummary], trained_s: float
) -> Ratio:
    """Return the samples of all ranks for a joule of all devices; unknown where that of one device is unknown."""
    energies = [(device.energy_j, device.energy_se_j) for device in devices]
    joules = sum(energy or 0.0 for energy, _ in energies)
    if not samples_per_s or not joules or any(energy is None for energy, _ in energies):
        return Ratio()
    value = samples_per_s * trained_s / joules
    share = sum(error_j or 0.0 for _, error_j in energies) / joules
    return Ratio(value, None if error is None else value * ((error / samples_per_s) ** 2 + share**2) ** 0.5)


def per_price(samples_per_s: float | None, error: float | None, per_hour: float | None) -> Ratio:
    """Return the samples for one unit of the currency, at the price of all devices for an hour."""
    if samples_per_s is None or per_hour is None:
        return Ratio()
    by = 3600.0 / per_hour
    return Ratio(samples_per_s * by, None if error is None else error * by)
