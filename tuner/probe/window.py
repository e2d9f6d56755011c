"""The part of a probe that counts, and what the devices did in it. Pure."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from statistics import fmean

from tuner.probe.plan import Device
from tuner.probe.result import DeviceSample, DeviceSummary, Progress
from tuner.probe.steady import FULL_PCT, Block, standard_error

_TIME_S = attrgetter("t_s")

LEAST_SPAN_S = 0.5
"""Shorter iterations are taken together: utilisation is read in steps of a tenth of a second and coarser."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """The moment at which every rank had finished an iteration."""

    iteration: int
    t_s: float
    samples: int | None = None
    """Of all ranks together."""


@dataclass(frozen=True, slots=True)
class Window:
    """Whole iterations: from the first of its marks to the last."""

    marks: tuple[Mark, ...]

    @property
    def first(self) -> Mark:
        """Where it begins."""
        return self.marks[0]

    @property
    def last(self) -> Mark:
        """Where it ends."""
        return self.marks[-1]

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.last.t_s - self.first.t_s

    @property
    def iterations(self) -> int:
        """How many whole iterations it holds."""
        return self.last.iteration - self.first.iteration

    @property
    def samples_per_s(self) -> float | None:
        """Samples of all ranks per second; None where the trainer does not count all of them, from its start on."""
        return _rate(self.first, self.last) or None  # a count of each iteration's own stands still

    def spans(self) -> list[tuple[Mark, Mark]]:
        """Cut it at marks into spans of at least `LEAST_SPAN_S`; what is left over goes to the last."""
        cuts = [self.first]
        for mark in self.marks[1:]:
            if mark.t_s - cuts[-1].t_s >= LEAST_SPAN_S:
                cuts.append(mark)
        return list(pairwise([*cuts[:-1], self.last])) if len(cuts) > 1 else [(self.first, self.last)]

    def rates(self) -> list[Block]:
        """Give samples per second, span by span; empty where the trainer does not count samples."""
        if self.samples_per_s is None:
            return []
        rates = [(one, other, _rate(one, other)) for one, other in self.spans()]
        return [Block(other.t_s - one.t_s, rate) for one, other, rate in rates if rate is not None]


def _rate(first: Mark, last: Mark) -> float | None:
    if first.samples is None or last.samples is None:
        return None
    return (last.samples - first.samples) / (last.t_s - first.t_s)


def marks(progress: Sequence[Progress], ranks: int) -> list[Mark]:
    """Give the iterations that are complete everywhere.

    Where ranks report for themselves, an iteration counts once all `ranks` have closed it, at the time of the last;
    what one of them says for all of them does not count beside that.
    """
    by_rank = [report for report in progress if report.rank is not None and report.rank < ranks]
    if not by_rank:
        return [
            Mark(iteration=report.iteration, t_s=report.t_s, samples=report.samples)
            for report in progress
            if report.rank is None
        ]
    whole: list[Mark] = []
    waiting: dict[int, list[Progress]] = {}
    for report in by_rank:
        closed = waiting.setdefault(report.iteration, [])
        closed.append(report)
        if len(closed) == ranks:
            counts = [one.samples for one in closed if one.samples is not None]
            whole.append(
                Mark(
                    iteration=report.iteration,
                    t_s=max(one.t_s for one in closed),
                    samples=sum(counts) if len(counts) == ranks else None,
                )
            )
    return whole


def find_window(marks: Sequence[Mark], *, warmup_iterations: int, ran_out: bool) -> Window | None:
    """Cut the window out of the marks: after warm-up, up to the last mark.

    When the trainer ended by itself (`ran_out`), its last iteration holds its wind-down (MimicKit: a test rollout) and
    is left out. None when nothing is left.
    """
    inside = marks[warmup_iterations - 1 : len(marks) - 1 if ran_out else None]
    if len(inside) < 2 or inside[-1].t_s <= inside[0].t_s:
        return None
    return Window(tuple(inside))


def summarise(
    samples: Sequence[DeviceSample], window: Window, devices: Sequence[Device], source: str
) -> tuple[DeviceSummary, ...]:
    """Summarise each device over the window; memory peak and power maximum are over the whole probe.

    `samples` come in the order of their times.
    """
    return tuple(
        _summary([one for one in samples if one.device == position], window, device.name, source)
        for position, device in enumerate(devices)
    )


def _summary(samples: Sequence[DeviceSample], window: Window, name: str, source: str) -> DeviceSummary:
    inside = _between(samples, window.first, window.last)
    spans = [(last.t_s - first.t_s, _between(inside, first, last)) for first, last in window.spans()]
    power_w = _mean(one.power_w for one in inside)
    return DeviceSummary(
        device=name,
        source=source,
        window_s=window.seconds,
        util_mean_pct=_mean(one.util_pct for one in inside),
        util_se_pct=_share_error((seconds, _mean(one.util_pct for one in span)) for seconds, span in spans),
        util_max_pct=_most(one.util_pct for one in inside),
        sm_mean_pct=_mean(one.sm_pct for one in inside),
        sm_se_pct=_share_error((seconds, _mean(one.sm_pct for one in span)) for seconds, span in spans),
        occupancy_mean_pct=_mean(one.occupancy_pct for one in inside),
        tensor_mean_pct=_mean(one.tensor_pct for one in inside),
        dram_mean_pct=_mean(one.dram_pct for one in inside),
        mem_peak_mib=_most(one.mem_used_mib for one in samples),
        mem_total_mib=_most(one.mem_total_mib for one in samples),
        power_mean_w=power_w,
        power_max_w=_most(one.power_w for one in samples),
        energy_j=None if power_w is None else power_w * window.seconds,
    )


@dataclass(frozen=True, slots=True)
class BusyShare:
    """What one rank reports of itself over a window, in percent."""

    mean_pct: float | None
    error_pct: float | None


def busy_shares(progress: Iterable[Progress], window: Window, ranks: int) -> list[BusyShare] | None:
    """Give each rank's own busy share over the window, or None unless every rank reports one at every cut."""
    reports = {(one.rank, one.iteration): one for one in progress if one.rank is not None and one.busy_s is not None}
    cuts = [window.first.iteration, *(last.iteration for _, last in window.spans())]
    shares: list[BusyShare] = []
    for rank in range(ranks):
        own = [reports[rank, iteration] for iteration in cuts if (rank, iteration) in reports]
        if len(own) < len(cuts) or any(later.t_s <= earlier.t_s for earlier, later in pairwise(own)):
            return None
        blocks = [Block(later.t_s - earlier.t_s, _busy_pct(earlier, later)) for earlier, later in pairwise(own)]
        shares.append(BusyShare(_busy_pct(own[0], own[-1]), standard_error(blocks, full=FULL_PCT)))
    return shares


def _busy_pct(earlier: Progress, later: Progress) -> float:
    busy_s = (later.busy_s or 0.0) - (earlier.busy_s or 0.0)
    return min(100.0, 100.0 * busy_s / (later.t_s - earlier.t_s))


def _between(samples: Sequence[DeviceSample], first: Mark, last: Mark) -> Sequence[DeviceSample]:
    """Cut out the readings after the first mark, up to the last; they stand in the order of their times."""
    begin = bisect_right(samples, first.t_s, key=_TIME_S)
    return samples[begin : bisect_right(samples, last.t_s, lo=begin, key=_TIME_S)]


def _share_error(means: Iterable[tuple[float, float | None]]) -> float | None:
    return standard_error([Block(seconds, mean) for seconds, mean in means if mean is not None], full=FULL_PCT)


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean(values: Iterable[float | None]) -> float | None:
    known = _known(values)
    return fmean(known) if known else None


def _most(values: Iterable[float | None]) -> float | None:
    return max(_known(values), default=None)
