"""Where the memory of a device ends along the ladder, as the search predicts it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.report.configs import Point
from tuner.search.growth import Growth
from tuner.study.space import LADDER, VARIANT, Parameter, Space

READING_ERROR, VARIANTS = 0.02, 0.1
"""How much a measured peak and the peaks of two variants usually differ, as shares; those of the calibration."""
FULL_PCT = 100.0
BEYOND = 1.15
"""The line ends at this multiple of the largest measured rung, or where memory ends."""
PARTS = 24
"""The line is drawn in so many parts, because the axis of the rungs is logarithmic and bends it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryLine:
    """The predicted share of a device's memory in use, in percent, for the variant of the best."""

    rungs: tuple[float, ...]
    shares: tuple[float, ...]
    end: float | None
    """The rung at which memory ends; None where memory does not grow."""


def memory_line(points: Sequence[Point]) -> MemoryLine | None:
    """Return the straight line through the measured peaks; None where fewer than two rungs have been measured."""
    known = [one for one in points if one.rung is not None and one.mem_share_pct is not None]
    rungs = sorted({one.rung for one in known if one.rung is not None})
    if len(rungs) < 2:
        return None
    variants = tuple(dict.fromkeys(one.config[VARIANT] for one in known if VARIANT in one.config))
    space = Space((Parameter(name=VARIANT, values=variants),) if variants else ())
    shares = [one.mem_share_pct or 0.0 for one in known]
    line = Growth(space, [one.config for one in known], shares, error=READING_ERROR, choices=VARIANTS)
    best = next((one for one in known if one.is_best), known[0])

    def at(*wanted: float) -> tuple[float, ...]:
        return tuple(float(one) for one in line.expect([{**best.config, LADDER: rung} for rung in wanted])[0])

    low, high = at(rungs[0], rungs[-1])
    slope = (high - low) / (rungs[-1] - rungs[0])
    end = rungs[0] + (FULL_PCT - low) / slope if slope > 0.0 else None
    last = rungs[-1] * BEYOND if end is None else min(max(rungs[-1] * BEYOND, 1.0), max(end, rungs[-1]))
    drawn = tuple(rungs[0] * (last / rungs[0]) ** (part / PARTS) for part in range(PARTS + 1))
    return MemoryLine(rungs=drawn, shares=at(*drawn), end=end)
