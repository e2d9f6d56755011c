"""What the readings of a device say about a part of a window: a reading averages over the past. Pure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, stdev

from tuner.probe.result import DeviceSample
from tuner.probe.steady import FULL_PCT, lone_error
from tuner.probe.window import Piece

NVML_PAST_S = 0.4
"""How far NVML's utilisation may reach back, in seconds: it is a mean over 0.2 s that ended up to 0.2 s earlier.

Measured on H200s, where the driver takes a value every 0.2 s. The NVML reference allows 1/6 s to 1 s.
"""


@dataclass(frozen=True, slots=True)
class Reading:
    """A value that averages a quantity over an interval."""

    begin_s: float
    end_s: float
    value: float

    @property
    def middle_s(self) -> float:
        """The middle of the interval."""
        return (self.begin_s + self.end_s) / 2


@dataclass(frozen=True, slots=True)
class Level:
    """The mean of a quantity over a piece, and its standard error from the ends of the piece."""

    mean: float
    edge_error: float
    """The standard error from the two ends of the piece, where no reading lies wholly inside."""


def readings(
    samples: Iterable[DeviceSample], read: Callable[[DeviceSample], float | None], past_s: float | None
) -> list[Reading]:
    """Return the known values of a quantity with their intervals. `samples` are sorted by time.

    An interval begins `past_s` before its sample, or at the value before it where `past_s` is None. GPM and CPU times
    are means since the value before.
    """
    known = [(sample.t_s, value) for sample in samples if (value := read(sample)) is not None]
    if past_s is not None:
        return [Reading(t_s - past_s, t_s, value) for t_s, value in known]
    return [Reading(before_s, t_s, value) for (before_s, _), (t_s, value) in pairwise(known)]


def level(known: Sequence[Reading], piece: Piece) -> Level | None:
    """Return the mean over a piece from the readings that lie wholly inside, or None where no reading says anything.

    A reading that reaches beyond the piece mixes two levels, so it is left out. Each moment of the piece takes the
    value of the nearest reading inside. Where no reading lies wholly inside, those whose middle lies inside count.
    """
    inside = [one for one in known if one.begin_s >= piece.begin_s and one.end_s <= piece.end_s]
    inside = inside or [one for one in known if piece.begin_s < one.middle_s <= piece.end_s]
    if not inside:
        return None
    middles = [one.middle_s for one in inside]
    cuts = [piece.begin_s, *(fmean(pair) for pair in pairwise(middles)), piece.end_s]
    seconds = piece.end_s - piece.begin_s
    mean = (
        sum((end_s - begin_s) * one.value for (begin_s, end_s), one in zip(pairwise(cuts), inside, strict=True))
        / seconds
    )
    edges_s = min(seconds, middles[0] - piece.begin_s + piece.end_s - middles[-1])
    scatter = stdev(one.value for one in inside) if len(inside) > 1 else lone_error(mean, full=FULL_PCT)
    return Level(mean, scatter * edges_s / seconds)
