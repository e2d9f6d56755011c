"""Summarises the measurements of a window, energy included, and says what a reader of the numbers should know. Pure.

- Window: the iterations that a probe evaluates. Its marks are the ends of iterations.
- Span: a part of a window, from one mark to a later one. The means over spans show how much a quantity scatters.
- Piece: a part in which each second stands for as much training as any other: none in a pause, such as an evaluation.
- `trained_s`: the seconds of training. A session may do only a share of an iteration's work, so they may exceed the
  window's length.
- Level: iterations in a row of about the same length.
- Reading: a value that a device has measured, mostly a mean over the time before it.
- Edge error: the part of a mean's error that comes from the ends of pieces, where no reading lies.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from operator import attrgetter
from statistics import fmean, stdev
from typing import NamedTuple

from tuner.probe import quantities
from tuner.probe.probe_plan import Device
from tuner.probe.result import BUSY_PCT, DeviceSample, DeviceSummary, Pause, Progress
from tuner.probe.window import Mark, Piece, Window

NVML_INTERVAL_S = 0.4
"""How far back, in seconds, NVML's utilisation may reach: it is a mean over 0.2 s that ended up to 0.2 s earlier.

Measured on H200s, where the driver takes a value every 0.2 s. The NVML reference allows 1/6 s to 1 s.
"""


class MeanReading(NamedTuple):
    """A value that averages a quantity over an interval."""

    begin_s: float
    end_s: float
    value: float

    @property
    def middle_s(self) -> float:
        """The middle of the interval."""
        return (self.begin_s + self.end_s) / 2


def mean_readings(
    samples: Iterable[DeviceSample], read: Callable[[DeviceSample], float | None], interval_s: float | None
) -> list[MeanReading]:
    """Return the known values of a quantity, each with the interval over which it is a mean.

    Args:
        samples: Sorted by time.
        read: Returns the quantity in a sample; None if it is unknown.
        interval_s: The length in seconds of each interval, which ends at its sample. None if it begins at the known
            value before, because GPM and CPU times are means since then.
    """
    known = [(sample.t_s, value) for sample in samples if (value := read(sample)) is not None]
    if interval_s is not None:
        return [MeanReading(t_s - interval_s, t_s, value) for t_s, value in known]
    return [MeanReading(before_s, t_s, value) for (before_s, _), (t_s, value) in pairwise(known)]


def piece_mean(readings: Sequence[MeanReading], piece: Piece) -> quantities.Quantity | None:
    """Return the mean of a quantity over a piece of a window, with its edge error; None without a reading inside.

    A reading whose interval reaches beyond the piece is left out, because it mixes the piece with its neighbour. If no
    interval lies wholly inside, the readings count whose middle lies inside. Each moment of the piece takes the value
    of the nearest reading. Before the first middle and after the last one this is a guess, which may be wrong by about
    the readings' scatter: that makes the edge error.
    """
    inside = [reading for reading in readings if reading.begin_s >= piece.begin_s and reading.end_s <= piece.end_s]
    inside = inside or [reading for reading in readings if piece.begin_s < reading.middle_s <= piece.end_s]
    if not inside:
        return None
    middles = [reading.middle_s for reading in inside]
    # each reading has the part of the piece up to halfway to its neighbours
    cuts = [piece.begin_s, *(fmean(pair) for pair in pairwise(middles)), piece.end_s]
    seconds = piece.end_s - piece.begin_s
    parts_s = [end_s - begin_s for begin_s, end_s in pairwise(cuts)]
    mean = sum(part_s * reading.value for part_s, reading in zip(parts_s, inside, strict=True)) / seconds
    edges_s = min(seconds, middles[0] - piece.begin_s + piece.end_s - middles[-1])
    scatter = quantities.error_of_single_block(mean, largest=quantities.FULL_PCT)
    if len(inside) > 1:
        scatter = stdev(reading.value for reading in inside)
    return quantities.Quantity(mean, edge_error=scatter * edges_s / seconds)


AROUND_S = 60.0
"""The longest time in seconds from the reading before a window to the window's first reading (chosen)."""
RISE = 0.0005
"""The smallest rise of memory that is told apart, as a share of the device's memory (chosen)."""
PARTS_OF_RUN = 12
"""The parts of a run for each of which the least and the largest memory is kept (chosen)."""


def summarise(
    samples: Sequence[DeviceSample], window: Window, device: Device, source: str, *, until_s: float | None = None
) -> DeviceSummary:
    """Return a summary of a device over the window. Peaks of memory and power cover the whole probe.

    Args:
        samples: the samples of the device, sorted by time.
        window: the iterations that count.
        device: the device.
        source: the name of what measures utilisation.
        until_s: the time of the probe's last mark; None for that of the window.
    """
    inside = _between(samples, window.first.t_s, window.last.t_s)
    # with the readings shortly before the window, one of which may be the only one that reaches into it
    around = _between(samples, window.first.t_s - AROUND_S, window.last.t_s)
    from_s = (window.origin or window.first).t_s  # the probe's first mark

    def mean(field: str, interval_s: float | None = None) -> float | None:
        """Return the mean of a field of the samples over the window; None if nothing measured it.

        `interval_s`: the seconds over which each reading is a mean; None if it is one since the reading before.
        """
        quantity = _window_mean(samples, window, attrgetter(field), interval_s)
        return quantity and quantity.value

    def share(
        field: str, interval_s: float | None = None, variation: quantities.Variation = quantities.USUAL_VARIATION
    ) -> quantities.Quantity | None:
        """Return the mean of a field in percent, with its standard error; None if nothing measured it.

        `variation` says how much the field usually varies from iteration to iteration.
        """
        read = attrgetter(field)
        if all(read(sample) is None for sample in around):
            return None
        mean_of = partial(_window_mean, samples, read=read, interval_s=interval_s)
        return _mean_with_error(mean_of, window, largest=quantities.FULL_PCT, variation=variation)

    util = share("util_pct", NVML_INTERVAL_S if device.is_gpu else None)
    sm = share("sm_pct", variation=quantities.SM_VARIATION)
    util_max_pct = quantities.of_known(
        max, (sample.util_pct for sample in inside)
    )  # a CPU share may exceed 100 % for a moment
    memory = memory_parts(samples, from_s, window.last.t_s if until_s is None else until_s)

    # energy is power over time: by the device's counter, or else by sampled power
    counted_w = counted_power(samples)
    power_w = counted_w or partial(_window_mean, samples, read=attrgetter("power_w"), interval_s=NVML_INTERVAL_S)
    counter = "counter" if device.is_gpu else "rapl"
    power = _mean_with_error(power_w, window)
    return DeviceSummary(
        device=device.name,
        source=source,
        util_mean_pct=util and min(util.value, quantities.FULL_PCT),
        util_se_pct=util and util.error,
        util_edge_pct=util.edge_error if util else 0.0,
        util_max_pct=util_max_pct and min(util_max_pct, quantities.FULL_PCT),
        sm_mean_pct=sm and sm.value,
        sm_se_pct=sm and sm.error,
        sm_edge_pct=sm.edge_error if sm else 0.0,
        occupancy_mean_pct=mean("occupancy_pct"),
        tensor_mean_pct=mean("tensor_pct"),
        dram_mean_pct=mean("dram_pct"),
        mem_peak_mib=quantities.of_known(
            max, (mib for sample in samples for mib in (sample.mem_used_mib, sample.mem_peak_mib))
        ),
        mem_total_mib=quantities.of_known(max, (sample.mem_total_mib for sample in samples)),
        mem_rises=memory_rises(samples, from_s),
        mem_floors=tuple(map(min, memory)),  # the least of each part of the run: a leak raises it
        mem_tops=tuple(map(max, memory)),
        power_mean_w=mean("power_w", NVML_INTERVAL_S),
        others_mean_pct=mean("others_pct"),
        delayed_mean_pct=mean("delayed_pct"),
        power_max_w=quantities.of_known(max, (sample.power_w for sample in samples)),
        energy_j=power and power.value * window.trained_s,
        energy_se_j=power and power.error and power.error * window.trained_s,
        energy_source=power and (counter if counted_w else SAMPLED),
    )


def memory_rises(samples: Iterable[DeviceSample], from_s: float) -> tuple[tuple[float, float], ...]:
    """Return when the memory of one device rose above its largest value so far, to predict whether it lasts.

    A rise below `RISE` is joined with the next rise. Of more than about 400 rises, only every second, third and so on
    is kept.

    Args:
        samples: Sorted by time.
        from_s: The time of the first mark.

    Returns:
        Pairs of seconds since the first mark, and the largest memory up to then in MiB. The first pair is that of the
        first sample after this mark, and the last pair that of the last sample. Empty without a sample after the mark.
    """
    rises: list[tuple[float, float]] = []
    largest, largest_of_last_rise, last_s = 0.0, 0.0, from_s
    for sample in samples:
        if sample.mem_used_mib is None:
            continue
        largest_before, last_s = largest, max(last_s, sample.t_s)
        largest = max(largest, sample.mem_used_mib, sample.mem_peak_mib or 0.0)
        if sample.t_s <= from_s:
            continue
        if not rises:  # the first sample after the first mark: the memory until then
            largest_of_last_rise = largest_before or largest
            rises.append((0.0, largest_of_last_rise))
        if largest > largest_of_last_rise + RISE * (sample.mem_total_mib or 0.0):
            largest_of_last_rise = largest
            rises.append((sample.t_s - from_s, largest))
    if not rises:
        return ()
    step = max(1, math.ceil(len(rises) / 400))
    return (rises[0], *rises[1::step], (last_s - from_s, largest))


def memory_parts(samples: Iterable[DeviceSample], from_s: float, until_s: float) -> list[list[float]]:
    """Return one device's memory in each of `PARTS_OF_RUN` parts of a run, to distinguish a leak from recurring peaks.

    A leak raises the least memory of each part. A longer batch or an evaluation does not: it shows in the largest
    memory of the parts in which it comes.

    Args:
        samples: Sorted by time.
        from_s: The time of the first mark.
        until_s: The time of the last mark. Later readings are left out, because an ending trainer gives back its memory
            while the card is still read.

    Returns:
        A list of readings in MiB for each part, all equally long; empty unless each part has a reading.
    """
    between = [sample for sample in samples if from_s < sample.t_s <= until_s]
    known = [(sample.t_s, sample.mem_used_mib) for sample in between if sample.mem_used_mib is not None]
    if len(known) < PARTS_OF_RUN:
        return []
    part_s = (known[-1][0] - from_s) / PARTS_OF_RUN
    parts: list[list[float]] = [[] for _ in range(PARTS_OF_RUN)]
    for t_s, mib in known:
        parts[min(PARTS_OF_RUN - 1, int((t_s - from_s) / part_s))].append(mib)
    return parts if all(parts) else []


def busy_shares(progress: Sequence[Progress], window: Window, ranks: int) -> list[quantities.Quantity | None]:
    """Return each rank's busy share over the window in percent, by the busy seconds that the ranks report.

    The busy share is the share of the training in which the rank's device did tensor work. Each rank's share is taken
    over its own times of the same iterations, because ranks end an iteration at slightly different times.

    Args:
        progress: The reports of all ranks so far.
        window: The iterations that count, by the marks of all ranks.
        ranks: The number of ranks.

    Returns:
        For each rank, the share; None for a share above 100 %, because the reported seconds cannot be right. The list
        is empty unless every rank reports its busy seconds at each mark that begins or ends a span of the window.
    """
    shares: list[quantities.Quantity | None] = []
    inside = [report for report in progress if window.first.iteration <= report.iteration <= window.last.iteration]
    level_iteration = window.marks[window.last_level_from].iteration if window.last_level_from else None
    for rank in range(ranks):
        reports = [report for report in inside if report.rank == rank]
        if len(reports) < 2 or reports[-1].t_s <= reports[0].t_s:
            return []
        busy_s = {report.iteration: report.busy_s for report in reports if report.busy_s is not None}
        # the same window by this rank's own times
        level_from = next((place for place, report in enumerate(reports) if report.iteration == level_iteration), 0)
        marks = (Mark(iteration=report.iteration, t_s=report.t_s, thin=report.thin) for report in reports)
        rank_window = Window(tuple(marks), level_from)
        ends_of_spans = {rank_window.first.iteration, *(span.last.iteration for span in rank_window.spans())}
        if not ends_of_spans <= busy_s.keys():
            return []
        shares.append(_busy_share(busy_s, rank_window))
    return shares


def _busy_share(busy_s: Mapping[int, float], rank_window: Window) -> quantities.Quantity | None:
    """Return for which share of the training a rank's device was busy with tensor work, in percent; None above 100 %.

    A session may do only a part of an iteration's work, and a rank reports the busy seconds of the whole. So they are
    divided by the seconds that the whole takes, `trained_s`, and not by the seconds that passed.

    Args:
        busy_s: iteration → the busy seconds of the rank from the start up to the iteration's end, as it reports them.
        rank_window: the window by the rank's own reports.
    """

    def busy_pct(part: Window) -> quantities.Quantity | None:
        """Return the share over a part of the window; None if it is unknown."""
        begin_s, end_s = busy_s.get(part.first.iteration), busy_s.get(part.last.iteration)
        if begin_s is None or end_s is None or part.seconds <= 0:
            return None
        return quantities.Quantity(quantities.FULL_PCT * (end_s - begin_s) / part.trained_s)

    share = _mean_with_error(busy_pct, rank_window, largest=quantities.FULL_PCT)
    if (
        share is None or share.value > 1.02 * quantities.FULL_PCT
    ):  # 2 %: the clocks of time and work are read one after the other
        return None
    return replace(share, value=min(share.value, quantities.FULL_PCT))


def with_busy_shares(
    summaries: Sequence[DeviceSummary], shares: Sequence[quantities.Quantity | None]
) -> tuple[DeviceSummary, ...]:
    """Return summaries whose utilisation is the busy share that each rank reports, as `busy_shares` returns it.

    Without a rank's share, its utilisation is unknown. The measured one does not take its place, because measured and
    reported shares cannot be compared.
    """
    return tuple(
        replace(
            summary,
            source="busy_share",
            util_mean_pct=share and share.value,
            util_se_pct=share and share.error,
            util_edge_pct=share.edge_error if share else 0.0,
            util_max_pct=None,
        )
        for summary, share in zip(summaries, shares or [None] * len(summaries), strict=True)
    )


def samples_per_s(window: Window) -> quantities.Quantity | None:
    """Return the samples of all ranks per second of training, with their error; None if they are unknown."""
    scatter_error = quantities.standard_error(window.sample_rates(), variation=_variation_of_speed(window))
    return _with_total_error(lambda part: _as_quantity(part.samples_per_s), window, scatter_error)


def iterations_per_s(window: Window) -> quantities.Quantity | None:
    """Return the iterations per second of training, with their error; None if they take no time."""
    variation = _variation_of_speed(window)
    return _mean_with_error(lambda part: _as_quantity(part.iterations_per_s), window, variation=variation)


def _variation_of_speed(window: Window) -> quantities.Variation:
    """Return how much speeds usually vary: more where batches come in bursts, and a window has whole rounds of them."""
    return quantities.BURSTS_VARIATION if window.round_iterations > 1 else quantities.USUAL_VARIATION


MeanOf = Callable[[Window], quantities.Quantity | None]
"""Returns the mean of a quantity over a part of a window, with its edge error; None if it is unknown."""


def _mean_with_error(
    mean_of: MeanOf,
    window: Window,
    *,
    largest: float = math.inf,
    variation: quantities.Variation = quantities.USUAL_VARIATION,
) -> quantities.Quantity | None:
    """Return the mean of a quantity over the window, with its standard error; None if the mean is unknown.

    The means over spans show how much the quantity scatters. `largest`: its largest possible value, such as 100 for a
    percentage. `variation`: how much such a quantity usually varies.
    """
    means = [(span.trained_s, mean_of(span)) for span in window.spans()]
    blocks = [quantities.Block(span_s, mean.value) for span_s, mean in means if mean]
    return _with_total_error(mean_of, window, quantities.standard_error(blocks, largest=largest, variation=variation))


def _with_total_error(mean_of: MeanOf, window: Window, scatter_error: float | None) -> quantities.Quantity | None:
    """Return the mean of a quantity over the window, with its standard error; None if the mean is unknown.

    The error is the root of the sum of three squares (independent errors): the scatter, the error of the window's
    edges, and by how much the mean of the last level differs from that of the window. No further iteration reduces the
    last two. If the mean of the last level is unknown, the mean of the window may be wrong by its full size.

    Args:
        mean_of: Returns the mean over a part of the window.
        window: The window.
        scatter_error: The standard error that the scatter within the window shows.
    """
    mean = mean_of(window)
    if scatter_error is None or mean is None:
        return mean
    level_change = 0.0
    if window.last_level is not None:
        level_mean = mean_of(window.last_level)
        level_change = (level_mean.value if level_mean else 0.0) - mean.value
    return replace(mean, error=math.hypot(scatter_error, level_change, mean.edge_error))


def _window_mean(
    samples: Sequence[DeviceSample],
    window: Window,
    read: Callable[[DeviceSample], float | None],
    interval_s: float | None,
) -> quantities.Quantity | None:
    """Return the mean of a quantity over a window, with its edge error; None if nothing measured the quantity.

    Each piece is weighted by the seconds of training that it stands for. In a window of a single piece, the mean is
    that of all readings, and the edge error is left out: such a window has only two ends.

    Args:
        samples: The samples of one device, sorted by time.
        window: The window, or a part of it.
        read: Returns the quantity in a sample; None if it is unknown.
        interval_s: The seconds over which each reading is a mean; None if it is one since the reading before.
    """
    pieces = window.pieces
    if len(pieces) == 1:
        return _as_quantity(quantities.of_known(fmean, map(read, _between(samples, window.first.t_s, window.last.t_s))))
    readings = mean_readings(_between(samples, window.first.t_s - AROUND_S, window.last.t_s), read, interval_s)
    trained_s = mean_sum = edge_error_sum = 0.0
    for piece in pieces:
        if mean := piece_mean(readings, piece):
            trained_s += piece.trained_s
            mean_sum += piece.trained_s * mean.value
            edge_error_sum += piece.trained_s * mean.edge_error
    return quantities.Quantity(mean_sum / trained_s, edge_error=edge_error_sum / trained_s) if trained_s else None


def _as_quantity(value: float | None) -> quantities.Quantity | None:
    """Return a value as a quantity whose error is unknown; None if the value is unknown, too."""
    return None if value is None else quantities.Quantity(value)


def _between(samples: Sequence[DeviceSample], begin_s: float, end_s: float) -> Sequence[DeviceSample]:
    """Return the samples with a time after `begin_s` and up to `end_s`. `samples` are sorted by time."""
    begin = bisect_right(samples, begin_s, key=attrgetter("t_s"))
    return samples[begin : bisect_right(samples, end_s, lo=begin, key=attrgetter("t_s"))]


NO_RATE = "samples/s is unknown"
"""The beginning of the note that says why the samples that a trainer prints do not count."""
WITHOUT_PAUSE = "the numbers are those without it"
"""The end of the note about the cost of a pause."""
LOADED = "other processes used"
"""The beginning of the note about a processor that others used, too."""


def samples_problem(window: Window) -> str | None:
    """Return why the samples of a window may be wrong, so that they give no speed; None without such a reason.

    The workers of a data loader fill a queue before the first iteration. While these batches last, training may be
    faster than the loader. A count of samples that falls is dropped from its mark. Where too many are dropped, some
    samples are known, and samples/s is not.
    """
    if window.is_queued:
        return "the batches that the loader had ready before the first iteration were not used up"
    if window.counts_samples and window.samples_per_s is None:
        return "`samples` is not the total since the start"
    return None


def notes(
    window: Window,
    shares: Sequence[quantities.Quantity | None],
    devices: Sequence[DeviceSummary],
    count_problem: str | None,
) -> Iterator[str]:
    """Yield the sentences that a person should read beside the numbers of a window.

    Args:
        window: The window.
        shares: The busy shares that the ranks report: see `busy_shares`.
        devices: The summaries of the devices.
        count_problem: Why the samples of the window may be wrong; None without such a reason.
    """
    if (last_level := window.last_level) is not None:
        before = Window(window.marks[: window.last_level_from + 1])
        before_s, after_s = (1 / (part.iterations_per_s or math.inf) for part in (before, last_level))
        yield f"iterations changed from {before_s:.3g} s to {after_s:.3g} s; the ± includes the difference"
    if count_problem:
        yield f"{NO_RATE if window.counts_samples else 'iterations/s is unknown'}: {count_problem}"
    yield from _pause_costs(window)
    if None in shares:
        yield "utilisation is unknown: a rank reports more `busy_s` than the time that has passed"
    if any(device.energy_source == SAMPLED for device in devices):
        yield "energy is integrated from sampled power, because a card has no counter of its own"
    if other_programs := others_in_words(devices):
        yield f"{other_programs}, so another run may give another value"


def others_in_words(devices: Iterable[DeviceSummary]) -> str | None:
    """Return how much of the processors others used, as a clause; None if it was little or is unknown."""
    others_pct = quantities.of_known(max, (device.others_mean_pct for device in devices)) or 0.0
    return f"{LOADED} {min(others_pct, 100):.0f} % of the processors" if others_pct >= BUSY_PCT else None


def step_share(window: Window) -> float | None:
    """Return the share, from 0 to 1, of a whole training's time that its steps take beside its pauses.

    A pause is time between two iterations that only comes after some of them, such as an evaluation. None if the window
    has no pause, or if it is unknown how often a pause comes.
    """
    pauses = _mean_pauses(window)
    if not pauses or not all(pause.every for pause in pauses):
        return None
    step_s = 1 / (window.iterations_per_s or math.inf)
    pause_s_per_step = sum(pause_s / pause.every for pause, pause_s in pauses.items() if pause.every)
    return step_s / (step_s + pause_s_per_step)


def _mean_pauses(window: Window) -> dict[Pause, float]:
    """Return each kind of pause in a window → its mean length in seconds.

    Where the output does not say how many iterations lie between two such pauses, the marks do; None for a single one.
    """
    marks_by_kind: dict[str, list[Mark]] = {}
    for mark in window.marks[1:]:
        if mark.pause and mark.pause_s:
            marks_by_kind.setdefault(mark.pause.what, []).append(mark)
    pauses: dict[Pause, float] = {}
    for what, marks in marks_by_kind.items():
        newest = marks[-1].pause  # the newest count, because an epoch may get longer
        mean_distance = (marks[-1].iteration - marks[0].iteration) / max(1, len(marks) - 1)  # 0 for a single pause
        every = (newest and newest.every) or mean_distance or None
        pauses[Pause(what, every)] = fmean(mark.pause_s for mark in marks)
    return pauses


def _pause_costs(window: Window) -> Iterator[str]:
    """Yield a note about the seconds that each kind of pause costs. The window's numbers are those without pauses."""
    for pause, pause_s in _mean_pauses(window).items():
        share = ""
        if pause.every:
            steps_s = pause.every / (window.iterations_per_s or math.inf)
            share_pct = 100 * pause_s / (pause_s + steps_s)
            per = "an epoch" if "epoch" in pause.what else "between two"
            share = f", {share_pct:.0f} % at {pause.every:.0f} iterations {per}"
        yield f"{pause.what} costs {pause_s:.1f} s{share}; {WITHOUT_PAUSE}"


SAMPLED = "sampled_power"
"""The source of energy of a device without a counter of its own: power that was sampled."""


def counted_power(samples: Sequence[DeviceSample]) -> MeanOf | None:
    """Return a function that returns one device's mean power over a window in watts, by its own counter of energy.

    None if the device has no counter, or if the counter stands still or falls. Each piece of a window is weighted by
    the seconds of training that it stands for.
    """
    known = [(sample.t_s, sample.energy_j) for sample in samples if sample.energy_j is not None]
    times_s, energies_j = [t_s for t_s, _ in known], [energy_j for _, energy_j in known]
    if len(known) < 2 or energies_j != sorted(energies_j) or energies_j[-1] <= energies_j[0]:
        return None

    def energy_at(t_s: float) -> float:
        """Return the counter in joules at a time between two readings, interpolated linearly."""
        place = min(max(bisect_right(times_s, t_s), 1), len(known) - 1)
        share = (t_s - times_s[place - 1]) / (times_s[place] - times_s[place - 1])
        return energies_j[place - 1] + (energies_j[place] - energies_j[place - 1]) * share

    def power_w(window: Window) -> quantities.Quantity | None:
        """Return the mean power over a window; None without a reading in it."""
        trained_s = energy_ws = 0.0  # the energy is the power of each piece times its seconds of training
        for piece in window.pieces:
            begin_s, end_s = max(piece.begin_s, times_s[0]), min(piece.end_s, times_s[-1])
            if end_s > begin_s:
                piece_w = (energy_at(end_s) - energy_at(begin_s)) / (end_s - begin_s)
                trained_s += piece.trained_s
                energy_ws += piece.trained_s * piece_w
        return quantities.Quantity(energy_ws / trained_s) if trained_s else None

    return power_w


def samples_per_joule(
    speed: quantities.Quantity | None, devices: Sequence[DeviceSummary], trained_s: float
) -> quantities.Quantity | None:
    """Return the samples of all ranks for a joule of all devices; None if the energy of one device is unknown.

    Args:
        speed: The samples of all ranks per second.
        devices: The summaries of all devices.
        trained_s: The seconds of training over which the energy was measured.
    """
    joules = sum(device.energy_j or 0.0 for device in devices)
    if not speed or not speed.value or not joules or any(device.energy_j is None for device in devices):
        return None
    error_j = sum(device.energy_se_j or 0.0 for device in devices)  # added up, because the errors of cards correlate
    return speed.times(trained_s).divided_by(quantities.Quantity(joules, error_j))
