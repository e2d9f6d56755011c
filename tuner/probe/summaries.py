"""Summarises the measurements of a window, energy included, and says what a reader of the numbers should know. Pure."""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import attrgetter, itemgetter
from statistics import fmean, stdev
from typing import NamedTuple

from tuner.probe import steady
from tuner.probe.probe_plan import Device
from tuner.probe.result import DeviceSample, DeviceSummary, Progress
from tuner.probe.steady import FULL_PCT, OF_UTILISATION, Block, Estimate, Usual, over
from tuner.probe.window import Mark, Piece, Window

NVML_PAST_S = 0.4
"""How far NVML's utilisation may reach back, in seconds: it is a mean over 0.2 s that ended up to 0.2 s earlier.

Measured on H200s, where the driver takes a value every 0.2 s. The NVML reference allows 1/6 s to 1 s.
"""


class Averaged(NamedTuple):
    """A value that averages a quantity over an interval."""

    begin_s: float
    end_s: float
    value: float

    @property
    def middle_s(self) -> float:
        """The middle of the interval."""
        return (self.begin_s + self.end_s) / 2


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


def level(known: Sequence[Averaged], piece: Piece) -> Estimate:
    """Return the mean over a piece from the readings that lie wholly inside; unknown where no reading says anything.

    A reading that reaches beyond the piece mixes two levels, so it is left out. Each moment of the piece takes the
    value of the nearest reading inside. Where no reading lies wholly inside, those whose middle lies inside count.
    """
    inside = [reading for reading in known if reading.begin_s >= piece.begin_s and reading.end_s <= piece.end_s]
    inside = inside or [reading for reading in known if piece.begin_s < reading.middle_s <= piece.end_s]
    if not inside:
        return Estimate()
    middles = [reading.middle_s for reading in inside]
    cuts = [piece.begin_s, *(fmean(pair) for pair in pairwise(middles)), piece.end_s]
    seconds = piece.end_s - piece.begin_s
    parts_s = [end_s - begin_s for begin_s, end_s in pairwise(cuts)]
    mean = sum(part_s * reading.value for part_s, reading in zip(parts_s, inside, strict=True)) / seconds
    edges_s = min(seconds, middles[0] - piece.begin_s + piece.end_s - middles[-1])
    scatter = stdev(reading.value for reading in inside) if len(inside) > 1 else steady.lone_error(mean, full=FULL_PCT)
    return Estimate(mean, edge_error=scatter * edges_s / seconds)


AROUND_S = 60.0
"""How long before a window the reading may lie from which the window's first reading began."""
RISE = 0.0005
"""The smallest rise of memory that is told apart, as a share of the device's memory."""
FLOORS = 12
"""The parts of a run of each of which the least and the largest memory is kept."""


def summarise(
    samples: Sequence[DeviceSample],
    window: Window,
    devices: Sequence[Device],
    source: str,
    *,
    until_s: float | None = None,
) -> tuple[DeviceSummary, ...]:
    """Return a summary of each device over the window. Peaks of memory and power cover the whole probe.

    Args:
        samples: sorted by time.
        window: the iterations that count.
        devices: in the order of `DeviceSample.device`.
        source: the name of what measures utilisation.
        until_s: the probe's last mark; None for that of the window.
    """
    until_s = window.last.t_s if until_s is None else until_s
    own: list[list[DeviceSample]] = [[] for _ in devices]
    for sample in samples:
        own[sample.device].append(sample)
    spans = window.spans()
    return tuple(
        _summary(readings, window, spans, device=device, source=source, until_s=until_s)
        for device, readings in zip(devices, own, strict=True)
    )


def _summary(
    samples: Sequence[DeviceSample],
    window: Window,
    spans: Sequence[Window],
    *,
    device: Device,
    source: str,
    until_s: float,
) -> DeviceSummary:
    """Return the summary of one device over a window with these spans; see `summarise`."""
    inside = _between(samples, window.first.t_s, window.last.t_s)
    around = _between(samples, window.first.t_s - AROUND_S, window.last.t_s)
    from_s = (window.origin or window.first).t_s

    def mean(field: str, past_s: float | None = None) -> float | None:
        """Return the mean of a field of the samples; None where nothing measured it."""
        return _mean(samples, window, attrgetter(field), past_s).mean

    def measure(field: str, past_s: float | None = None, varies: Usual = OF_UTILISATION) -> Estimate:
        """Return the mean of a field of the samples and its error; unknown where nothing measured it."""
        read = attrgetter(field)
        if all(read(sample) is None for sample in around):
            return Estimate()
        return _of_share(lambda part: _mean(samples, part, read, past_s), window, spans, varies)

    util, sm = measure("util_pct", NVML_PAST_S if device.is_gpu else None), measure("sm_pct", varies=steady.OF_SM)
    memory = memory_parts(samples, from_s, until_s)
    counted = by_counter(samples)
    power_w = counted or (lambda part: Estimate(_mean(samples, part, attrgetter("power_w"), NVML_PAST_S).mean))
    power = _estimate(power_w, window, _blocks(power_w, spans))
    source_of_power = SAMPLED if counted is None else COUNTER if device.is_gpu else RAPL
    return DeviceSummary(
        device=device.name,
        source=source,
        window_s=window.seconds,
        util_mean_pct=over(_at_most_full, [util.mean]),
        util_se_pct=util.error,
        util_edge_pct=util.edge_error,
        util_max_pct=over(_at_most_full, (sample.util_pct for sample in inside)),
        sm_mean_pct=sm.mean,
        sm_se_pct=sm.error,
        sm_edge_pct=sm.edge_error,
        occupancy_mean_pct=mean("occupancy_pct"),
        tensor_mean_pct=mean("tensor_pct"),
        dram_mean_pct=mean("dram_pct"),
        mem_peak_mib=over(max, (mib for sample in samples for mib in (sample.mem_used_mib, sample.mem_peak_mib))),
        mem_total_mib=over(max, (sample.mem_total_mib for sample in samples)),
        mem_rises=rises(samples, from_s),
        mem_floors=tuple(map(min, memory)),
        mem_tops=tuple(map(max, memory)),
        power_mean_w=mean("power_w", NVML_PAST_S),
        others_mean_pct=mean("others_pct"),
        delayed_mean_pct=mean("delayed_pct"),
        power_max_w=over(max, (sample.power_w for sample in samples)),
        energy_j=power.mean and power.mean * window.trained_s,
        energy_se_j=power.error and power.error * window.trained_s,
        energy_source=None if power.mean is None else source_of_power,
    )


def _at_most_full(shares: Sequence[float]) -> float:
    return min(max(shares), FULL_PCT)


def rises(samples: Iterable[DeviceSample], from_s: float) -> tuple[tuple[float, float], ...]:
    """Return when the memory of one device rose above its largest value so far: see `DeviceSummary.mem_rises`.

    `samples` are sorted by time; `from_s` is the first mark. Rises below `RISE` are joined with the next one, and so
    are neighbours where there are more than 400.
    """
    rising: list[tuple[float, float]] = []
    largest, last_s = 0.0, from_s
    for sample in samples:
        if sample.mem_used_mib is None:
            continue
        before, last_s = largest, max(last_s, sample.t_s)
        largest = max(largest, sample.mem_used_mib, sample.mem_peak_mib or 0.0)
        if sample.t_s <= from_s:
            continue
        rising = rising or [(0.0, before or largest)]
        if largest > rising[-1][1] + RISE * (sample.mem_total_mib or 0.0):
            rising.append((sample.t_s - from_s, largest))
    every = max(1, math.ceil(len(rising) / 400))
    return (*rising[:1], *rising[1::every], (last_s - from_s, largest)) if rising else ()


def memory_parts(samples: Iterable[DeviceSample], from_s: float, until_s: float) -> list[list[float]]:
    """Return the memory of one device in MiB that was read in each of `FLOORS` parts of the time between two marks.

    Empty unless each part has a reading. What leaks or grows raises the least of each part, and a longer batch or an
    evaluation does not. What comes again, such as an evaluation, shows in the largest of several parts. A card is read
    until its trainer has ended, and an ending trainer has given back its memory; so the last mark ends the parts.
    """
    between = [sample for sample in samples if from_s < sample.t_s <= until_s]
    known = [(sample.t_s, sample.mem_used_mib) for sample in between if sample.mem_used_mib is not None]
    if len(known) < FLOORS:
        return []
    part_s = (known[-1][0] - from_s) / FLOORS
    parts: list[list[float]] = [[] for _ in range(FLOORS)]
    for t_s, mib in known:
        parts[min(FLOORS - 1, int((t_s - from_s) / part_s))].append(mib)
    return parts if all(parts) else []


def busy_shares(progress: Sequence[Progress], window: Window, ranks: int) -> list[Estimate] | None:
    """Return each rank's busy share over the window in percent, as the rank itself reports it.

    Returns None unless every rank reports its busy seconds at each mark that begins or ends a span of the window. A
    share above 100 % is unknown, because the reported seconds cannot be right.
    """
    shares: list[Estimate] = []
    inside = [report for report in progress if window.first.iteration <= report.iteration <= window.last.iteration]
    for rank in range(ranks):
        own = [report for report in inside if report.rank == rank]
        if len(own) < 2 or own[-1].t_s <= own[0].t_s:
            return None
        busy_s = {report.iteration: report.busy_s for report in own if report.busy_s is not None}
        begins = window.marks[window.level_from].iteration if window.level_from else None
        level_from = next((place for place, report in enumerate(own) if report.iteration == begins), 0)
        marks = (Mark(iteration=report.iteration, t_s=report.t_s, thin=report.thin) for report in own)
        times = Window(tuple(marks), level_from)
        if not {times.first.iteration, *(span.last.iteration for span in times.spans())} <= busy_s.keys():
            return None
        shares.append(_busy_share(busy_s, times))
    return shares


def _busy_share(busy_s: Mapping[int, float], times: Window) -> Estimate:
    """Return a rank's busy share in percent, from its busy seconds at each iteration; unknown above 100 %."""

    def busy_pct(part: Window) -> Estimate:
        """Return the share over a part of the window."""
        begin_s, end_s = (busy_s.get(mark.iteration) for mark in (part.first, part.last))
        if begin_s is None or end_s is None or part.seconds <= 0:
            return Estimate()
        return Estimate(FULL_PCT * (end_s - begin_s) / part.trained_s)

    share = busy_pct(times).mean
    if share is None or share > 1.02 * FULL_PCT:  # two clocks are read one after the other
        return Estimate()
    return replace(_of_share(busy_pct, times, times.spans()), mean=min(share, FULL_PCT))


def with_reported(summaries: Sequence[DeviceSummary], shares: Sequence[Estimate] | None) -> tuple[DeviceSummary, ...]:
    """Return summaries whose utilisation is the busy share that each rank reports.

    Utilisation is unknown where the reported busy times do not cover the window: the two numbers cannot be mixed.
    """
    return tuple(
        replace(
            summary,
            source="busy_share",
            util_mean_pct=share.mean,
            util_se_pct=share.error,
            util_edge_pct=share.edge_error,
            util_max_pct=None,
        )
        for summary, share in zip(summaries, shares or [Estimate()] * len(summaries), strict=True)
    )


def rate(window: Window) -> Estimate:
    """Return the samples of all ranks per second of training."""
    return _rate(window, window.rates(), attrgetter("samples_per_s"))


def pace(window: Window) -> Estimate:
    """Return the iterations per second of training; unknown where they jump as lines of an earlier run do."""
    return Estimate() if window.has_jumps else _rate(window, window.paces(), attrgetter("iterations_per_s"))


def _rate(window: Window, blocks: Sequence[Block], mean_of: Callable[[Window], float | None]) -> Estimate:
    varies = steady.OF_BURSTS if window.round > 1 else OF_UTILISATION
    return _estimate(lambda part: Estimate(mean_of(part)), window, blocks, varies=varies)


def _of_share(
    mean_of: Callable[[Window], Estimate], window: Window, spans: Sequence[Window], varies: Usual = OF_UTILISATION
) -> Estimate:
    """Return the mean of a busy share over the window in percent, with its error from the spans."""
    return _estimate(mean_of, window, _blocks(mean_of, spans), full=FULL_PCT, varies=varies)


def _blocks(mean_of: Callable[[Window], Estimate], spans: Sequence[Window]) -> list[Block]:
    means = [(span.trained_s, mean_of(span).mean) for span in spans]
    return [Block(span_s, mean) for span_s, mean in means if mean is not None]


def _estimate(
    mean_of: Callable[[Window], Estimate],
    window: Window,
    blocks: Sequence[Block],
    *,
    full: float = math.inf,
    varies: Usual = OF_UTILISATION,
) -> Estimate:
    """Return the mean of a quantity over the window, with its error from the blocks.

    The error also holds two differences that no further iteration averages out: what the ends of the pieces add, which
    are alike in each iteration, and how far the mean after the last change of level is from that of the window. Where
    nothing is known of the last level, the mean may be wrong by its full size.
    """
    over_window = mean_of(window)
    error = steady.standard_error(blocks, full=full, varies=varies)
    if error is None or over_window.mean is None:
        return over_window
    change = (mean_of(window.last_level).mean or 0.0) - over_window.mean if window.last_level else 0.0
    return replace(over_window, error=math.hypot(error, change, over_window.edge_error))


def _mean(
    samples: Sequence[DeviceSample], window: Window, read: Callable[[DeviceSample], float | None], past_s: float | None
) -> Estimate:
    """Return the mean over a window, and the standard error that the ends of its pieces add.

    Each piece is weighted by the seconds of training that it stands for. In a window of a single piece, every reading
    counts alike: its ends are few and no second stands for many.
    """
    pieces = window.pieces()
    if len(pieces) == 1:
        return Estimate(over(fmean, map(read, _between(samples, window.first.t_s, window.last.t_s))))
    known = averages(_between(samples, window.first.t_s - AROUND_S, window.last.t_s), read, past_s)
    levels = [(piece.trained_s, level(known, piece)) for piece in pieces]
    weighted = [(trained_s, estimate) for trained_s, estimate in levels if estimate.mean is not None]
    total_s = sum(trained_s for trained_s, _ in weighted)
    if not total_s:
        return Estimate()
    mean = sum(trained_s * (estimate.mean or 0.0) for trained_s, estimate in weighted) / total_s
    return Estimate(mean, edge_error=sum(trained_s * estimate.edge_error for trained_s, estimate in weighted) / total_s)


def _between(samples: Sequence[DeviceSample], begin_s: float, end_s: float) -> Sequence[DeviceSample]:
    """Return the samples after `begin_s` and up to `end_s`. `samples` are sorted by time."""
    begin = bisect_right(samples, begin_s, key=attrgetter("t_s"))
    return samples[begin : bisect_right(samples, end_s, lo=begin, key=attrgetter("t_s"))]


NO_RATE = "samples/s is unknown"
"""A note begins with these words if the trainer prints samples that do not count."""
WITHOUT_PAUSE = "the numbers are those without it"
"""The end of the note about what a pause costs."""
LOADED = "other processes used"
"""The beginning of the note about a processor that others used, too."""
BUSY_PCT = 10.0
"""From this share of the processors on, in percent, the result of a probe on the CPU says what others used."""


def doubtful(window: Window) -> str | None:
    """Return why the samples of a window may be wrong; None where nothing speaks against them."""
    if window.is_queued:
        return "the batches that the loader had ready before the first iteration were not used up"
    if window.counts_samples and window.has_jumps:
        return f"iterations came {Window.JUMP:.0f} times as fast for a while, as lines of an earlier run do"
    if window.counts_samples and window.samples_per_s is None:
        return "`samples` is not the total since the start"
    return None


def notes(
    window: Window, shares: list[Estimate] | None, devices: Sequence[DeviceSummary], doubt: str | None = None
) -> Iterator[str]:
    """Yield what a reader of the window's numbers should know; `doubt` says why its samples may be wrong."""
    if (level := window.last_level) is not None:
        before_s, after_s = (part.trained_s / part.iterations for part in (window.before_change, level))
        yield f"iterations changed from {before_s:.3g} s to {after_s:.3g} s, and the error holds the difference"
    if doubt:
        yield f"{NO_RATE if window.counts_samples else 'iterations/s is unknown'}: {doubt}"
    yield from _costs(window)
    if shares and any(share.mean is None for share in shares):
        yield "utilisation is unknown: a rank reports more `busy_s` than the time that has passed"
    if any(device.energy_source == SAMPLED for device in devices):
        yield "energy is integrated from sampled power, because a card has no counter of its own"
    others_pct = over(max, (device.others_mean_pct for device in devices)) or 0.0
    if others_pct >= BUSY_PCT:
        yield f"{LOADED} {min(others_pct, 100):.0f} % of the processors, so another run may give another value"


def step_share(window: Window) -> float | None:
    """Return the share of a whole training's time that its steps take beside its pauses.

    None where the window has no pause, or not every pause's period is known.
    """
    kinds = _pauses(window)
    if not kinds or not all(kind.every for kind in kinds):
        return None
    step_s = 1 / (window.iterations_per_s or math.inf)
    return step_s / (step_s + sum(kind.seconds / kind.every for kind in kinds if kind.every))


class _PauseKind(NamedTuple):
    what: str
    seconds: float
    """The mean length of a pause."""
    every: float | None
    """The iterations from one to the next, where these are known."""


def _pauses(window: Window) -> list[_PauseKind]:
    """Return the kinds of pauses in a window, with their mean lengths and periods."""
    by_kind: dict[str, list[Mark]] = {}
    periods: dict[str, float | None] = {}
    for mark in window.marks[1:]:
        if mark.pause and mark.pause_s:
            by_kind.setdefault(mark.pause.what, []).append(mark)
            periods[mark.pause.what] = mark.pause.every
    kinds: list[_PauseKind] = []
    for what, marks in by_kind.items():
        between = (marks[-1].iteration - marks[0].iteration) / (len(marks) - 1) if len(marks) > 1 else None
        kinds.append(_PauseKind(what, fmean(mark.pause_s for mark in marks), periods[what] or between))
    return kinds


def _costs(window: Window) -> Iterator[str]:
    """Yield what each kind of pause costs. No pause is part of the window's numbers."""
    for what, cost_s, every in _pauses(window):
        steps_s = (every or 0.0) / (window.iterations_per_s or math.inf)
        each = "an epoch" if "epoch" in what else "between two"
        share = f", {100 * cost_s / (cost_s + steps_s):.0f} % at {every:.0f} iterations {each}" if every else ""
        yield f"{what} costs {cost_s:.1f} s{share}; {WITHOUT_PAUSE}"


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
