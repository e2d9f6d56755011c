"""Summarises the measurements of a window, and says what a reader of the numbers should know. Pure."""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import hypot
from operator import attrgetter
from statistics import fmean, stdev

from tuner.probe.probe_plan import Device
from tuner.probe.result import DeviceSample, DeviceSummary, Pause, Progress
from tuner.probe.steady import (
    FULL_PCT,
    OF_BURSTS,
    OF_SM,
    OF_UTILISATION,
    Block,
    Usual,
    lone_error,
    standard_error,
    with_change,
)
from tuner.probe.window import JUMP, LEAST_SPANS, Mark, Piece, Window

NVML_PAST_S = 0.4
"""How far NVML's utilisation may reach back, in seconds: it is a mean over 0.2 s that ended up to 0.2 s earlier.

Measured on H200s, where the driver takes a value every 0.2 s. The NVML reference allows 1/6 s to 1 s.
"""


@dataclass(frozen=True, slots=True)
class Averaged:
    """A value that averages a quantity over an interval."""

    begin_s: float
    end_s: float
    value: float

    @property
    def middle_s(self) -> float:
        """The middle of the interval."""
        return (self.begin_s + self.end_s) / 2


@dataclass(frozen=True, slots=True)
class PieceLevel:
    """The mean of a quantity over a piece, and its standard error from the ends of the piece."""

    mean: float
    edge_error: float
    """The standard error from the two ends of the piece, where no reading lies wholly inside."""


def averages(
    samples: Iterable[DeviceSample], read: Callable[[DeviceSample], float | None], past_s: float | None
) -> list[Averaged]:
    """Return the known values of a quantity with their intervals. `samples` are sorted by time.

    An interval begins `past_s` before its sample, or at the value before it where `past_s` is None. GPM and CPU times
    are means since the value before.
    """
    known = [(sample.t_s, value) for sample in samples if (value := read(sample)) is not None]
    if past_s is not None:
        return [Averaged(t_s - past_s, t_s, value) for t_s, value in known]
    return [Averaged(before_s, t_s, value) for (before_s, _), (t_s, value) in pairwise(known)]


def level(known: Sequence[Averaged], piece: Piece) -> PieceLevel | None:
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
    return PieceLevel(mean, scatter * edges_s / seconds)


CLOCK_SHARE = 0.02
"""Reported busy seconds may exceed the elapsed seconds by this share: two clocks are read one after the other."""
AROUND_S = 60.0
"""How long before a window the reading may lie from which the window's first reading began."""

_TIME_S = attrgetter("t_s")


def summarise(
    samples: Sequence[DeviceSample], window: Window, devices: Sequence[Device], source: str
) -> tuple[DeviceSummary, ...]:
    """Summarise each device over the window. The memory peak and the power maximum cover the whole probe.

    `samples` are sorted by time.
    """
    return tuple(
        _summary([one for one in samples if one.device == position], window, device, source)
        for position, device in enumerate(devices)
    )


def _summary(samples: Sequence[DeviceSample], window: Window, device: Device, source: str) -> DeviceSummary:
    inside = _between(samples, window.first.t_s, window.last.t_s)
    around = _between(samples, window.first.t_s - AROUND_S, window.last.t_s)

    def measure(field: str, past_s: float | None = None, varies: Usual = OF_UTILISATION) -> Estimate:
        read = attrgetter(field)
        if all(read(sample) is None for sample in around):
            return Estimate()
        return _estimate(lambda part: _mean(samples, part, read, past_s), window, varies)

    util, sm = measure("util_pct", NVML_PAST_S if device.is_gpu else None), measure("sm_pct", varies=OF_SM)
    power_w = measure("power_w", NVML_PAST_S).mean
    return DeviceSummary(
        device=device.name,
        source=source,
        window_s=window.seconds,
        util_mean_pct=None if util.mean is None else min(util.mean, FULL_PCT),
        util_se_pct=util.error,
        util_edge_pct=util.edge_error,
        util_max_pct=_most(None if one.util_pct is None else min(one.util_pct, FULL_PCT) for one in inside),
        sm_mean_pct=sm.mean,
        sm_se_pct=sm.error,
        sm_edge_pct=sm.edge_error,
        occupancy_mean_pct=measure("occupancy_pct").mean,
        tensor_mean_pct=measure("tensor_pct").mean,
        dram_mean_pct=measure("dram_pct").mean,
        mem_peak_mib=_most(number for one in samples for number in (one.mem_used_mib, one.mem_peak_mib)),
        mem_total_mib=_most(one.mem_total_mib for one in samples),
        power_mean_w=power_w,
        others_mean_pct=measure("others_pct").mean,
        power_max_w=_most(one.power_w for one in samples),
        energy_j=None if power_w is None else power_w * window.trained_s,
    )


RISE = 0.0005
"""The smallest rise of memory that is told apart, as a share of the device's memory."""
MOST_RISES = 400
FLOORS = 12


def rises(samples: Iterable[DeviceSample], from_s: float) -> tuple[tuple[float, float], ...]:
    """Return when the memory of one device rose above its largest value so far: see `DeviceSummary.mem_rises`.

    `samples` are sorted by time; `from_s` is the first mark. Rises below `RISE` are joined with the next one.
    """
    found: list[tuple[float, float]] = []
    largest, last_s = 0.0, from_s
    for one in samples:
        if one.mem_used_mib is None:
            continue
        before, largest, last_s = largest, max(largest, one.mem_used_mib, one.mem_peak_mib or 0.0), max(last_s, one.t_s)
        if one.t_s <= from_s:
            continue
        found = found or [(0.0, before or largest)]
        if largest > found[-1][1] + RISE * (one.mem_total_mib or 0.0):
            found.append((one.t_s - from_s, largest))
    every = max(1, math.ceil(len(found) / MOST_RISES))  # the joined ones end up in the later one
    return (*found[:1], *found[1::every], (last_s - from_s, largest)) if found else ()


def floors(samples: Iterable[DeviceSample], from_s: float, until_s: float) -> tuple[float, ...]:
    """Return the least memory of one device in each of `FLOORS` parts of the time between two marks, in MiB.

    What leaks or grows raises these floors, and a longer batch or an evaluation does not. Empty where a part is. A card
    is read until its trainer has ended, and an ending trainer has given back its memory; so the last mark ends them.
    """
    return tuple(map(min, _parts(samples, from_s, until_s)))


def tops(samples: Iterable[DeviceSample], from_s: float, until_s: float) -> tuple[float, ...]:
    """Return the largest memory of one device that was read in each of the same parts, in MiB.

    What comes again, such as an evaluation, shows in several of them.
    """
    return tuple(map(max, _parts(samples, from_s, until_s)))


def _parts(samples: Iterable[DeviceSample], from_s: float, until_s: float) -> list[list[float]]:
    """Return the memory that was read in each of `FLOORS` parts of the time between two marks, unless one is empty."""
    own = [one for one in samples if from_s < one.t_s <= until_s]
    known = [(one.t_s, one.mem_used_mib) for one in own if one.mem_used_mib is not None]
    if len(known) < FLOORS:
        return []
    part_s = (known[-1][0] - from_s) / FLOORS
    parts: list[list[float]] = [[] for _ in range(FLOORS)]
    for t_s, mib in known:
        parts[min(FLOORS - 1, int((t_s - from_s) / part_s))].append(mib)
    return parts if all(parts) else []


FRAGMENTED = 1.25
"""An allocator that reserves so many times what it allocates has holes that no tensor fits into."""


def fragmentation(progress: Iterable[Progress]) -> str | None:
    """Return what to do about an allocator that reserves far more than it allocates; None where none does."""
    pairs = [(one.reserved_mib, one.allocated_mib) for one in progress if one.reserved_mib and one.allocated_mib]
    reserved, allocated = max(pairs, default=(0.0, 0.0))
    if reserved < FRAGMENTED * allocated or not pairs:
        return None
    return (
        f"the allocator reserved {reserved:.0f} MiB for at most {allocated:.0f} MiB of tensors: memory is fragmented; "
        "set PYTORCH_ALLOC_CONF=expandable_segments:True in `environment.variables`"
    )


@dataclass(frozen=True, slots=True)
class Estimate:
    """The mean of a quantity over a window, and its standard error; None where it is unknown."""

    mean: float | None = None
    error: float | None = None
    edge_error: float = 0.0
    """The part of `error` from the ends of thin pieces; more iterations do not reduce this part."""


def busy_shares(progress: Sequence[Progress], window: Window, ranks: int) -> list[Estimate] | None:
    """Return each rank's busy share over the window in percent, as the rank itself reports it.

    Returns None unless every rank reports its busy seconds at each mark that begins or ends a span of the window. A
    share above 100 % is unknown, because the reported seconds cannot be right.
    """
    shares: list[Estimate] = []
    inside = [one for one in progress if window.first.iteration <= one.iteration <= window.last.iteration]
    for rank in range(ranks):
        own = [one for one in inside if one.rank == rank]
        if len(own) < 2 or own[-1].t_s <= own[0].t_s:
            return None
        busy_s = {one.iteration: one.busy_s for one in own if one.busy_s is not None}
        begins = window.marks[window.level_from].iteration if window.level_from else None
        level_from = next((place for place, one in enumerate(own) if one.iteration == begins), 0)
        times = Window(tuple(Mark(iteration=one.iteration, t_s=one.t_s, thin=one.thin) for one in own), level_from)
        if not {times.first.iteration, *(span.last.iteration for span in times.spans())} <= busy_s.keys():
            return None
        shares.append(_busy_share(busy_s, times))
    return shares


def _busy_share(busy_s: Mapping[int, float], times: Window) -> Estimate:
    share = _busy_pct(busy_s, times)
    if share is None or share > FULL_PCT * (1 + CLOCK_SHARE):
        return Estimate()
    return replace(_estimate(lambda part: (_busy_pct(busy_s, part), 0.0), times), mean=min(share, FULL_PCT))


def _busy_pct(busy_s: Mapping[int, float], window: Window) -> float | None:
    begin_s, end_s = (busy_s.get(mark.iteration) for mark in (window.first, window.last))
    if begin_s is None or end_s is None or window.seconds <= 0:
        return None
    return FULL_PCT * (end_s - begin_s) / window.trained_s


def _with_change(
    error: float | None, mean: float | None, window: Window, mean_of: Callable[[Window], float | None]
) -> float | None:
    """Return the error of a mean; where the window's level changes, the difference to the last level counts too.

    Where nothing is known of the last level, the mean may be wrong by its whole size.
    """
    if error is None or mean is None or window.last_level is None:
        return error
    return with_change(error, mean, mean_of(window.last_level) or 0.0)


def rate(window: Window) -> Estimate:
    """Return the samples of all ranks per second of training."""
    return _rate(window, window.rates(), attrgetter("samples_per_s"))


def pace(window: Window) -> Estimate:
    """Return the iterations per second of training; unknown where they jump as lines of an earlier run do."""
    return Estimate() if window.has_jumps else _rate(window, window.paces(), attrgetter("iterations_per_s"))


def _rate(window: Window, blocks: Sequence[Block], mean_of: Callable[[Window], float | None]) -> Estimate:
    mean = mean_of(window)
    error = standard_error(blocks, varies=OF_BURSTS if window.round > 1 else OF_UTILISATION)
    return Estimate(mean, _with_change(error, mean, window, mean_of))


def _estimate(
    mean_of: Callable[[Window], tuple[float | None, float]], window: Window, varies: Usual = OF_UTILISATION
) -> Estimate:
    """Return the mean of a quantity over the window. `mean_of` is as `_mean`.

    The error also holds what the ends of the pieces add. These ends are alike in each iteration, so iterations do not
    average them out.
    """
    mean, edge_error = mean_of(window)
    means = [(span.trained_s, mean_of(span)[0]) for span in window.spans()]
    blocks = [Block(span_s, known) for span_s, known in means if known is not None]
    error = standard_error(blocks, full=FULL_PCT, varies=varies)
    error = _with_change(error, mean, window, lambda level: mean_of(level)[0])
    return Estimate(mean, None if error is None else hypot(error, edge_error), edge_error)


def _mean(
    samples: Sequence[DeviceSample],
    window: Window,
    read: Callable[[DeviceSample], float | None],
    past_s: float | None,
) -> tuple[float | None, float]:
    """Return the mean over a window, and the standard error that the ends of its pieces add.

    Each piece is weighted by the seconds of training that it stands for. In a window of a single piece, every reading
    counts alike: its ends are few and no second stands for many.
    """
    pieces = window.pieces()
    if len(pieces) == 1:
        known = _known(map(read, _between(samples, window.first.t_s, window.last.t_s)))
        return (fmean(known) if known else None), 0.0
    around = _between(samples, window.first.t_s - AROUND_S, window.last.t_s)
    known = averages(around, read, past_s)
    levels = [(piece, found) for piece in pieces if (found := level(known, piece)) is not None]
    trained_s = sum(piece.trained_s for piece, _ in levels)
    if not trained_s:
        return None, 0.0
    mean = sum(piece.trained_s * found.mean for piece, found in levels) / trained_s
    return mean, sum(piece.trained_s * found.edge_error for piece, found in levels) / trained_s


def _between(samples: Sequence[DeviceSample], begin_s: float, end_s: float) -> Sequence[DeviceSample]:
    """Return the samples after `begin_s` and up to `end_s`. `samples` are sorted by time."""
    begin = bisect_right(samples, begin_s, key=_TIME_S)
    return samples[begin : bisect_right(samples, end_s, lo=begin, key=_TIME_S)]


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _most(values: Iterable[float | None]) -> float | None:
    return max(_known(values), default=None)


NO_RATE = "samples/s is unknown"
"""A note begins with these words if the trainer prints samples or speeds that do not count."""
BUSY_PCT = 10.0
"""From this share of the processors on, in percent, the result of a probe on the CPU says what others used."""


def doubtful(window: Window, *, adds_speeds: bool) -> str | None:
    """Return why the samples of a window may be wrong; None where nothing speaks against them.

    `adds_speeds`: the samples are worked out from printed speeds.
    """
    if window.is_queued:
        return "the batches that the loader had ready before the first iteration were not used up"
    if window.counts_samples and window.has_jumps:
        return f"iterations came {JUMP:.0f} times as fast for a while, as lines of an earlier run do"
    if adds_speeds and not window.has_steady_iterations:
        return (
            f"the printed speeds are averages over more than the time since the line before, or fewer than "
            f"{LEAST_SPANS}; samples or samples_per_iteration would count"
        )
    if window.counts_samples and window.samples_per_s is None:
        return "`samples` is not the total since the start"
    return None


def notes(
    window: Window, shares: list[Estimate] | None, devices: Sequence[DeviceSummary], doubt: str | None = None
) -> Iterator[str]:
    """Yield what a reader of the window's numbers should know; `doubt` says why its samples may be wrong."""
    if (level := window.last_level) is not None:
        before_s, after_s = (one.trained_s / one.iterations for one in (window.before_change, level))
        yield f"iterations changed from {before_s:.3g} s to {after_s:.3g} s, and the error holds the difference"
    if doubt:
        yield f"{NO_RATE if window.counts_samples else 'iterations/s is unknown'}: {doubt}"
    yield from _costs(window)
    if shares and any(share.mean is None for share in shares):
        yield "utilisation is unknown: a rank reports more `busy_s` than the time that has passed"
    yield from _busy_with_others(devices)


WITHOUT_PAUSE = "the numbers are those without it"
"""The end of the note about what a pause costs."""


def step_share(window: Window) -> float | None:
    """Return the share of a whole training's time that its steps take beside its pauses.

    None where the window has no pause, or not every pause's period is known.
    """
    found = list(_pauses(window))
    if not found or not all(every for _, _, every in found):
        return None
    step_s = 1 / (window.iterations_per_s or math.inf)
    return step_s / (step_s + sum(cost_s / every for _, cost_s, every in found if every))


def _pauses(window: Window) -> Iterator[tuple[str, float, float | None]]:
    """Yield what each kind of pause is, its seconds, and the iterations from one to the next, where these are known."""
    by_kind: dict[str, list[tuple[Pause, Mark]]] = {}
    for mark in window.marks[1:]:
        if mark.pause and mark.pause_s:
            by_kind.setdefault(mark.pause.what, []).append((mark.pause, mark))
    for what, found in by_kind.items():
        (_, first), (last, end) = found[0], found[-1]
        between = (end.iteration - first.iteration) / (len(found) - 1) if len(found) > 1 else None
        yield what, fmean(mark.pause_s for _, mark in found), last.every or between


def _costs(window: Window) -> Iterator[str]:
    """Yield what each kind of pause costs. No pause is part of the window's numbers."""
    for what, cost_s, every in _pauses(window):
        steps_s = (every or 0.0) / (window.iterations_per_s or math.inf)
        each = "an epoch" if "epoch" in what else "between two"
        share = f", {100 * cost_s / (cost_s + steps_s):.0f} % at {every:.0f} iterations {each}" if every else ""
        yield f"{what} costs {cost_s:.1f} s{share}; {WITHOUT_PAUSE}"


LOADED = "other processes used"
"""The beginning of the note about a processor that others used, too."""


def _busy_with_others(devices: Sequence[DeviceSummary]) -> Iterator[str]:
    others_pct = max((one.others_mean_pct or 0.0 for one in devices), default=0.0)
    if others_pct >= BUSY_PCT:
        used = f"{min(others_pct, 100):.0f} % of the processors"
        yield f"{LOADED} {used}, so another run may give another value"
