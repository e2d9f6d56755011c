"""Summarises the measurements of each device over a window. Pure."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import fmean

from tuner.probe.plan import Device
from tuner.probe.result import DeviceSample, DeviceSummary, Progress
from tuner.probe.steady import FULL_PCT, Block, standard_error
from tuner.probe.window import Mark, Window

LAG_S = 0.2
"""The average age in seconds of a measured value: the time by which it lags behind the device.

NVML's utilisation is a mean over 0.2 s that ended up to 0.2 s earlier. A GPM value is a mean over the last 0.5 s. The
lag decides whether a measurement belongs to the thin part of an iteration. Without thin parts, no lag is applied.
"""

_TIME_S = attrgetter("t_s")


def summarise(
    samples: Sequence[DeviceSample], window: Window, devices: Sequence[Device], source: str
) -> tuple[DeviceSummary, ...]:
    """Summarise each device over the window. The memory peak and the power maximum cover the whole probe.

    `samples` are sorted by time.
    """
    return tuple(
        _summary([one for one in samples if one.device == position], window, device.name, source)
        for position, device in enumerate(devices)
    )


def _summary(samples: Sequence[DeviceSample], window: Window, name: str, source: str) -> DeviceSummary:
    inside = _between(samples, window.first.t_s, window.last.t_s)
    spans = window.spans()

    def mean(field: str) -> float | None:
        return _mean(samples, window, attrgetter(field))

    def error(field: str) -> float | None:
        means = [(span.trained_s, _mean(samples, span, attrgetter(field))) for span in spans]
        return standard_error([Block(span_s, mean) for span_s, mean in means if mean is not None], full=FULL_PCT)

    power_w = mean("power_w")
    return DeviceSummary(
        device=name,
        source=source,
        window_s=window.seconds,
        util_mean_pct=mean("util_pct"),
        util_se_pct=error("util_pct"),
        util_max_pct=_most(one.util_pct for one in inside),
        sm_mean_pct=mean("sm_pct"),
        sm_se_pct=error("sm_pct"),
        occupancy_mean_pct=mean("occupancy_pct"),
        tensor_mean_pct=mean("tensor_pct"),
        dram_mean_pct=mean("dram_pct"),
        mem_peak_mib=_most(one.mem_used_mib for one in samples),
        mem_total_mib=_most(one.mem_total_mib for one in samples),
        power_mean_w=power_w,
        power_max_w=_most(one.power_w for one in samples),
        energy_j=None if power_w is None else power_w * window.trained_s,
    )


@dataclass(frozen=True, slots=True)
class BusyShare:
    """The busy share that one rank reports for a window, in percent, and its standard error."""

    mean_pct: float | None
    error_pct: float | None


def busy_shares(progress: Sequence[Progress], window: Window, ranks: int) -> list[BusyShare] | None:
    """Return each rank's busy share over the window, as the rank itself reports it.

    Returns None unless every rank reports its busy seconds at each mark that begins or ends a span of the window.
    """
    shares: list[BusyShare] = []
    inside = [one for one in progress if window.first.iteration <= one.iteration <= window.last.iteration]
    for rank in range(ranks):
        own = [one for one in inside if one.rank == rank]
        if len(own) < 2 or own[-1].t_s <= own[0].t_s:
            return None
        busy_s = {one.iteration: one.busy_s for one in own if one.busy_s is not None}
        times = Window(tuple(Mark(iteration=one.iteration, t_s=one.t_s, thin=one.thin) for one in own))
        spans = times.spans()
        if not {times.first.iteration, *(span.last.iteration for span in spans)} <= busy_s.keys():
            return None
        blocks = [Block(span.trained_s, _busy_pct(busy_s, span)) for span in spans]
        shares.append(BusyShare(_busy_pct(busy_s, times), standard_error(blocks, full=FULL_PCT)))
    return shares


def _busy_pct(busy_s: Mapping[int, float], window: Window) -> float:
    more_s = busy_s[window.last.iteration] - busy_s[window.first.iteration]
    return min(100.0, 100.0 * more_s / window.trained_s)


def _mean(
    samples: Sequence[DeviceSample], window: Window, read: Callable[[DeviceSample], float | None]
) -> float | None:
    """Return the mean over the window, with each piece weighted by the seconds of training that it stands for."""
    pieces = window.pieces()
    lag_s = LAG_S if len(pieces) > 1 else 0.0
    means: list[tuple[float, float]] = []
    for piece in pieces:
        if known := _known(map(read, _between(samples, piece.begin_s + lag_s, piece.end_s + lag_s))):
            means.append((piece.trained_s, fmean(known)))
    trained_s = sum(weight_s for weight_s, _ in means)
    return sum(weight_s / trained_s * mean for weight_s, mean in means) if means else None


def _between(samples: Sequence[DeviceSample], begin_s: float, end_s: float) -> Sequence[DeviceSample]:
    """Return the samples after `begin_s` and up to `end_s`. `samples` are sorted by time."""
    begin = bisect_right(samples, begin_s, key=_TIME_S)
    return samples[begin : bisect_right(samples, end_s, lo=begin, key=_TIME_S)]


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _most(values: Iterable[float | None]) -> float | None:
    return max(_known(values), default=None)
