"""How the memory of a device rose in a run, and how far it may rise in a longer one. Pure.

The run is divided into equally long parts. The floor of a part is its least memory. A record is a moment at which more
memory is in use than at any earlier time. Two things raise the largest memory so far:

- What comes now and then, such as a longer batch or an evaluation, makes records. Where each part of a run is like the
  other, records become rarer. While the time becomes e times as long, one more comes at most (Rényi, "Théorie des
  éléments saillants d'une suite d'observations", 1962).
- What leaks or grows raises memory by as much in each minute, and it also raises the floors.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise
from operator import attrgetter
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tuner.probe import HOUR_S, RISE, DeviceSummary
from tuner.search.resource_model import Floats

GROWS = 0.1
"""The probability that memory grows all the time, before anything is known."""


class RecordPrior(NamedTuple):
    """What is known of records before the run: `benchmarks/memory/series.py` has the runs to which this was fitted."""

    records: float
    """The number of records that come in a tenth of the run (a gamma distribution)."""
    least_memory_share: float
    """The usual record is at least this share of the memory in use."""
    least_swing_share: float
    """The usual record is at least this share of what comes and goes above the floors."""
    most: float = 1.0
    """The most records that are expected while the time becomes e times as long."""
    like_observed: bool = True
    """Whether a new record is as large as the mean of the usual record and of all observed records."""


USUAL = RecordPrior(0.25, 0.02, 0.4, like_observed=False)
"""For a run as people start it."""
PROVOKED = RecordPrior(0.15, 0.01, 0.03)
"""For a run whose flags provoke early what needs most memory: a later record is less likely, and small."""
PILING_UP = PROVOKED._replace(most=math.inf)
"""The same where freed memory is kept for later: then records may be freed blocks that pile up.

So they may go on as often as they came.
"""
DRAWS = 8000
"""The number of random draws of what memory may do later."""
SURE = 0.95
"""The probability with which a statement about memory holds."""


class MemoryGrowth(NamedTuple):
    """How memory grows all the time, if it does."""

    mib_per_s: float
    error: float
    """The standard error of `mib_per_s`."""
    probability: float
    """The probability that memory grows at all."""


@dataclass(frozen=True, kw_only=True)
class MemoryRise:
    """How the largest memory of a device rose in a run, and what follows for a longer run.

    All times are seconds since the run's first mark: the end of its first iteration.
    """

    begin_s: float
    """When the run had settled: earlier rises are those of its start."""
    end_s: float
    """The time so far."""
    now_mib: float
    """The largest memory so far."""
    peak_s: float
    """When memory was this large first."""
    steps: tuple[tuple[float, float], ...] = ()
    """Each rise since `begin_s`: its time, and by how many MiB the largest memory rose."""
    floors: tuple[float, ...] = ()
    """The least memory of each equally long part, in MiB."""
    skipped: int = 0
    """The number of first parts that are left out: what the run does now began after them."""
    resolution_mib: float
    """The smallest difference of memory that counts."""

    @classmethod
    def of(cls, device: DeviceSummary) -> "MemoryRise | None":
        """Return how a device's memory rose; None where that is not known."""
        if len(device.mem_rises) < 2:  # no rise beside the end
            return None
        *rises, (end_s, now_mib) = device.mem_rises  # the last entry is the end of the run, not a rise
        if end_s <= 0:
            return None
        onset_s = _onset_s(device)
        begin_s = max(0.2 * end_s, onset_s)  # at first, caches fill and the optimizer gets its memory
        steps = [(t_s, mib - before_mib) for (_, before_mib), (t_s, mib) in pairwise(rises) if t_s > begin_s]
        skipped = math.ceil(onset_s / end_s * len(device.mem_floors))  # the parts of the run before the onset
        floors = tuple(device.mem_floors[skipped:])
        if onset_s and floors and not steps:  # growth would have raised the peak that recurs, so the floors are flat
            floors = (min(floors),) * len(floors)
        return cls(
            begin_s=begin_s,
            end_s=end_s,
            now_mib=now_mib,
            peak_s=rises[-1][0],
            steps=tuple(steps),
            floors=floors,
            skipped=skipped,
            resolution_mib=RISE * (device.mem_total_mib or now_mib),
        )

    @cached_property
    def _growth(self) -> MemoryGrowth:
        """The growth that fits best. It may begin late, because what is free at the start is used up first."""
        return self._fitted(late=True)

    def _fitted(self, *, late: bool) -> MemoryGrowth:
        """Return how fast the least memory of each part grows in a straight line, and how probably it grows at all.

        The straight line that fits best is compared with curves that do not grow for ever, by Schwarz's criterion. A
        short part may miss the least memory, so the least of three neighbouring floors counts.

        `late`: whether growth may begin late, after flat floors. Growth that begins in the last three parts is not
        found.
        """
        count = len(self.floors)
        if count < 6:  # too few to compare curves: the probability stays as before the run
            return MemoryGrowth(
                mib_per_s=0.0, error=self.resolution_mib / (self.end_s - self.begin_s), probability=GROWS
            )
        part_s = self.end_s / (self.skipped + count)
        # The middles of the parts with two neighbours. The first part is left out, and is no neighbour.
        at_s = (np.arange(count) + self.skipped + 0.5)[2:-1] * part_s
        floors = np.array([self.floors[1:-2], self.floors[2:-1], self.floors[3:]]).min(axis=0)

        # The line that fits best, for each time at which growth may begin.
        begins_s = at_s[: max(1, len(at_s) - 3)] if late else at_s[:1]
        clocks = [np.maximum(at_s - begin_s, 0.0) for begin_s in begins_s]  # the time since growth began
        parameter_counts = [2] + [3] * (len(clocks) - 1)  # slope and level; a late begin is a third parameter
        evidence = [
            _evidence(_misfit(floors, clock) + self._rounding, count, floors)
            for clock, count in zip(clocks, parameter_counts, strict=True)
        ]
        clock = clocks[evidence.index(max(evidence))]
        slope = float(np.polyfit(clock, floors, 1)[0])
        misfit = _misfit(floors, clock) + self._rounding

        # The probability of growth: the prior odds times the ratio of the evidence for and against it.
        prior_log_odds = math.log(GROWS / (1 - GROWS))
        log_odds = prior_log_odds + max(evidence) - self._evidence_without_growth(at_s, floors)
        if slope <= 0:  # falling floors are no evidence for growth
            log_odds = min(log_odds, prior_log_odds)
        bounded = max(-700.0, min(700.0, log_odds))  # exp overflows soon after 700
        return MemoryGrowth(
            mib_per_s=max(slope, 0.0),
            error=math.sqrt(misfit * len(floors) / (len(floors) - 2) / np.square(clock - clock.mean()).sum()),
            probability=1.0 / (1.0 + math.exp(-bounded)),
        )

    @property
    def _rounding(self) -> float:
        """The variance, in MiB², of the uniform error by which memory is rounded to `resolution_mib`."""
        return self.resolution_mib**2 / 12

    def _evidence_without_growth(self, at_s: NDArray[np.floating[Any]], floors: Floats) -> float:
        """Return the largest evidence for a curve of memory that does not grow for ever.

        Such curves are constant, rise with the logarithm of the time, or rise in up to three steps. `floors`: the least
        memory in each part of the run, in MiB, around the times `at_s`.
        """
        variance = float(floors.var())
        evidence = [
            _evidence(variance + self._rounding, 1, floors),  # a level is fitted
            _evidence(_misfit(floors, np.log(at_s)) + self._rounding, 2, floors),  # a slope and a level
        ]
        if variance > self._rounding:
            evidence += self._evidence_of_steps(floors)
        return max(evidence)

    def _evidence_of_steps(self, floors: Floats) -> Iterator[float]:
        """Yield the evidence for curves with one, two and three steps, between which the floors are flat.

        Equal blocks of memory may also come from growth. So each step then counts as uncertain by a block.
        """
        for steps in range(1, min(3, len(floors) - 1) + 1):
            misfit = _misfit_of_steps(floors, steps)
            if misfit <= self._rounding:  # flat between the steps
                parameters = 2 * steps + 1  # the time of each step, and the levels
                yield _evidence(misfit + max(self._rounding, self._block_mib**2 / 12), parameters, floors)

    @property
    def _block_mib(self) -> float:
        """The size of the blocks in which memory is allocated, in MiB; 0 where it does not come in equal blocks.

        It comes in blocks if at least two steps were observed, and all are multiples of the smallest, within 3 %.
        """
        sizes = [by for _, by in self.steps if by > self.resolution_mib]
        block = min(sizes, default=0.0)
        are_multiples = len(sizes) > 1 and all(abs(math.remainder(by, block)) <= 0.03 * block for by in sizes)
        return block if are_multiples else 0.0

    @property
    def grows(self) -> float:
        """The probability that memory grows for ever."""
        return self._growth.probability

    @property
    def kind(self) -> Literal["flat", "steps", "slope"]:
        """What the memory did: it stayed flat, rose in steps that become rarer, or grew all the time."""
        if self.grows > 0.5:
            return "slope"
        return "steps" if self.steps else "flat"

    @property
    def sure_mib_per_h(self) -> float:
        """A lower bound on the growth in MiB per hour: two standard errors below the best fit; 0 if growth is not sure.

        A longer batch near the end looks like growth that begins late, so only growth from the start on is sure.
        """
        growth = self._fitted(late=False)
        return HOUR_S * max(0.0, growth.mib_per_s - 2.0 * growth.error) if growth.probability >= SURE else 0.0

    @property
    def hidden_mib_per_h(self) -> float:
        """An upper bound on growth, in MiB per hour, that is too small to show in the run; 0 where growth does show.

        It is two standard errors above the growth that fits best.
        """
        return 0.0 if self.kind == "slope" else HOUR_S * (self._growth.mib_per_s + 2.0 * self._growth.error)

    def future_rises_mib(self, until_s: float, prior: RecordPrior = USUAL) -> Floats:
        """Return by how many MiB the largest memory may rise from now to `until_s`, as `DRAWS` random draws.

        Memory grows in a share of the draws, which is the probability of growth. In all draws, records raise it. Growth
        counts from `peak_s` on: if what caused the peak recurs, such as an evaluation, all growth since then is added.

        Args:
            until_s: The end, in seconds after the first mark.
            prior: How often memory exceeds all before it, and by how much, as expected before the run.

        Returns:
            The rises, the smallest first.
        """
        random, slope = np.random.default_rng(0), self._growth.mib_per_s
        # Records come with the logarithm of the time: this is the coming time as a multiple of the observed time.
        log_time_ratio = math.log(max(until_s, self.end_s) / self.end_s) / math.log(self.end_s / self.begin_s)
        growing_draws = round(DRAWS * self.grows)
        growing_s = max(until_s - self.peak_s, 0.0)
        growth = np.abs(random.normal(slope, self._growth.error, size=growing_draws)) * growing_s
        records_beside_growth = self._records(
            random, growing_draws, log_time_ratio, prior, self._steps_beyond_growth(slope)
        )
        records_alone = self._records(
            random, DRAWS - growing_draws, log_time_ratio, prior, [by for _, by in self.steps]
        )
        return np.sort(np.concatenate([growth + records_beside_growth, records_alone]))

    def _steps_beyond_growth(self, slope: float) -> list[float]:
        """Return the sizes of the observed records in MiB: each step, less the growth since the step before.

        A step of which growth explains half or more is no record, and is left out. `slope`: the growth in MiB/s.
        """
        steps: list[float] = []
        for (before_s, _), (at_s, by_mib) in pairwise([(self.begin_s, 0.0), *self.steps]):
            beyond_growth_mib = by_mib - slope * (at_s - before_s)
            if beyond_growth_mib > max(self.resolution_mib, by_mib / 2):
                steps.append(beyond_growth_mib)
        return steps

    def _records(
        self, random: np.random.Generator, draws: int, log_time_ratio: float, prior: RecordPrior, sizes: list[float]
    ) -> Floats:
        """Return by how many MiB future records will raise the largest memory: the sum of their sizes, in each draw.

        The number of records is Poisson distributed. The size of each repeats one of `sizes`, or is new and
        exponentially distributed (Blackwell and MacQueen, "Ferguson distributions via Pólya urn schemes", 1973).

        Args:
            random: The source of random numbers.
            draws: The number of draws.
            log_time_ratio: The coming time as a multiple of the observed time, both in logarithms.
            prior: How often memory exceeds all before it, and by how much, as expected before the run.
            sizes: The observed records, in MiB.
        """
        # How many records come in each draw: the posterior of their rate is a gamma distribution.
        most = prior.most * math.log(self.end_s / self.begin_s)
        runs = 0.1 + 1.0  # the prior counts as a tenth of a run, and this run as one
        rate = np.minimum(random.gamma(prior.records + len(sizes), size=draws) / runs, most)
        count = random.poisson(log_time_ratio * rate)

        # How large a new record usually is.
        swing_mib = self.now_mib - min(self.floors, default=self.now_mib)
        usual_mib = max(prior.least_memory_share * self.now_mib, prior.least_swing_share * swing_mib)
        if prior.like_observed:
            usual_mib = (usual_mib + sum(sizes)) / (1 + len(sizes))

        # The size of each: a row per draw, as long as the largest count. Only the first `count` of a row come.
        shape = draws, int(count.max(initial=0))
        size_mib = random.exponential(usual_mib, shape)
        if sizes:
            is_repeated = random.random(shape) < len(sizes) / (1.0 + len(sizes))
            size_mib = np.where(is_repeated, random.choice(sizes, shape), size_mib)
        comes = np.arange(shape[1]) < count[:, np.newaxis]
        return np.where(comes, size_mib, 0.0).sum(axis=1)


def _onset_s(device: DeviceSummary) -> float:
    """Return the second at which something first came that recurs and makes most of the peak, such as an evaluation.

    0 where nothing recurs. Something recurs if memory climbs at least half-way from its least to its peak, falls back
    to a quarter, and climbs as high again. The first climb does not show how memory rises later, so the run settles
    only after it.
    """
    rises, floors, tops = device.mem_rises, device.mem_floors, device.mem_tops
    end_s, high = rises[-1]
    if not floors or len(tops) != len(floors):  # earlier versions stored no tops
        return 0.0
    low, part_s = min(floors), end_s / len(floors)
    half, quarter = low + 0.5 * (high - low), low + 0.25 * (high - low)  # it is up from half on, and down at a quarter

    # The first climb. Readings within half a part belong to it.
    first_s = next(t_s for t_s, mib in rises if mib >= half)
    if first_s <= 0.0:  # memory was high from the start
        return 0.0
    onset_s = max(t_s for t_s, _ in rises[:-1] if t_s <= first_s + 0.5 * part_s)

    # The fall after it, and then the next climb.
    next_part = min(len(floors) - 1, int(onset_s / part_s)) + 1
    fallen_at = next((at for at in range(next_part, len(floors)) if floors[at] <= quarter), len(floors))
    recurs = any(top >= half for top in tops[fallen_at + 1 :])
    return onset_s if recurs else 0.0


def _evidence(misfit: float, parameters: int, floors: Floats) -> float:
    """Return the logarithm of the evidence for a curve by Schwarz's criterion: minus half of the BIC.

    `misfit`: the mean squared residual of the floors. `parameters`: how many parameters of the curve were fitted.
    """
    return -(len(floors) * math.log(misfit) + parameters * math.log(len(floors))) / 2


def _misfit(floors: Floats, clock: NDArray[np.floating[Any]]) -> float:
    """Return the mean squared residual of floors about their regression line over `clock`, the time of each floor."""
    return float(np.square(floors - np.polyval(np.polyfit(clock, floors, 1), clock)).mean())


def _misfit_of_steps(floors: Floats, steps: int) -> float:
    """Return the mean squared residual of floors about the best stairs: flat levels between so many steps."""
    least = math.inf
    for steps_at in combinations(range(1, len(floors)), steps):
        levels = [floors[begin:end] for begin, end in pairwise((0, *steps_at, len(floors)))]
        least = min(least, sum(float(level.var()) * len(level) for level in levels))
    return least / len(floors)


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryForecast:
    """How surely a config's memory suffices for a training, on the device where that is least sure."""

    hours: float
    """The length of the training."""
    chance: float
    """The probability that memory suffices to the end."""
    rise: MemoryRise
    """How memory rose in the run."""
    most_mib: float
    """With the probability `SURE`, memory stays below this."""
    total_mib: float

    @property
    def share(self) -> float:
        """The share of the device's memory below which memory stays with the probability `SURE`."""
        return self.most_mib / self.total_mib

    @property
    def filled_h(self) -> float:
        """The hours after which growth too small to show may have filled the memory; infinite without any."""
        left_mib, hidden_mib_per_h = SPARE * self.total_mib - self.rise.now_mib, self.rise.hidden_mib_per_h
        return left_mib / hidden_mib_per_h if hidden_mib_per_h else math.inf


SPARE = 0.995
"""The share of a device's memory that a trainer can get."""


def forecast_memory(
    devices: tuple[DeviceSummary, ...], hours: float, prior: RecordPrior = USUAL
) -> MemoryForecast | None:
    """Return how surely memory suffices for a training of so many hours, on the device where that is least sure.

    None where no device's memory is known. `prior`: how often memory exceeds all before it, and by how much, as
    expected before the run.
    """
    answers: list[MemoryForecast] = []
    for device in devices:
        rise, total_mib = MemoryRise.of(device), device.mem_total_mib
        if rise and total_mib:
            rises_mib = rise.future_rises_mib(hours * HOUR_S, prior)
            left_mib = SPARE * total_mib - rise.now_mib
            answers.append(
                MemoryForecast(
                    hours=hours,
                    chance=float((rises_mib <= left_mib).mean()),
                    rise=rise,
                    most_mib=rise.now_mib + float(np.quantile(rises_mib, SURE)),
                    total_mib=total_mib,
                )
            )
    return min(answers, key=attrgetter("chance"), default=None)
