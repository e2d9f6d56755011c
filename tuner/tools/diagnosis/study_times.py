"""What is known of a study: the times of its trials, their start-ups, trials at once, and shares. Pure.

A start-up is the time from a trial's start until it trains. A gap is a time without any trial between the first trial
and the last; a pause is a gap so long that a person must have left the study alone.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from statistics import fmean
from typing import Generic, TypeVar

import numpy as np

Fact = TypeVar("Fact")
Interval = tuple[float, float]
"""A begin and an end, in seconds of one clock."""


BESIDE_OTHERS = " beside other programs"
"""The end of a kind of failure, where other programs used the processors meanwhile."""


class TrialEnd(StrEnum):
    """How a trial ended."""

    COMPLETE = "complete"
    PRUNED = "pruned"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    """The user stopped it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownFact(Generic[Fact]):
    """A fact, and who says so."""

    value: Fact
    source: str
    """`database`, `estimated …`, `GUESS`, or the option that gave it."""
    low: Fact | None = None
    """The smallest of several numbers, whose mean is the value; None for a single number."""
    high: Fact | None = None
    """The largest of them."""

    @property
    def range_text(self) -> str:
        """The number in words, or the smallest and the largest of several, as in `0 to 2`."""
        return f"{self.value:g}" if self.low == self.high else f"{self.low:g} to {self.high:g}"

    @property
    def mean_text(self) -> str:
        """The mean of several numbers in words, to follow `range_text`: `, 0.7 in the mean`; empty for one number."""
        return "" if self.low == self.high else f", {self.value:.1f} in the mean"


GUESS = "a guess: those of this machine"
"""Who says the number of cores where neither the database nor the user does."""


def as_fact(value: Fact | None, source: str) -> KnownFact[Fact] | None:
    """Return a value with who says so; None where there is no value."""
    return None if value is None else KnownFact(value=value, source=source)


def mean_as_fact(numbers: Sequence[float], source: str) -> KnownFact[float] | None:
    """Return the mean of several numbers, with the smallest and the largest; None where there are none."""
    if not numbers:
        return None
    return KnownFact(value=fmean(numbers), source=source, low=min(numbers), high=max(numbers))


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """What the trials ran with, as far as it is known."""

    startup_s: KnownFact[float] | None = None
    """The seconds from the start of a trial until it trains."""
    loader_workers: KnownFact[float] | None = None
    """The worker processes of one trial that load data."""
    cores: KnownFact[int] | None = None
    n_jobs: KnownFact[int] | None = None
    """The threads of one process that run trials, as Optuna's `n_jobs`; 1 where each trial has a process of its own."""
    gpus: KnownFact[int] | None = None
    """The GPUs of the machine."""
    gpus_per_trial: KnownFact[int] | None = None
    """The GPUs that one trial uses."""
    gpu_memory_gib: KnownFact[float] | None = None
    """The memory of one GPU."""
    memory_used_gib: KnownFact[float] | None = None
    """The memory of one GPU that is in use while the usual number of trials runs."""
    duty_pct: KnownFact[float] | None = None
    """The mean utilisation of the GPUs over the whole study."""
    others_pct: KnownFact[float] | None = None
    """The mean share of the processors that other programs used during trials, as `tuner` measured it."""
    data_wait: KnownFact[float] | None = None
    """The share of training, from 0 to 1, that waits for the next batch of a loader, as counted inside the trials."""

    def or_else(self, fallback: "Setup") -> "Setup":
        """Return this setup, with the facts of `fallback` where this one has none."""
        names = (field.name for field in fields(self))
        return Setup(**{name: getattr(self, name) or getattr(fallback, name) for name in names})


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialTimes:
    """An ended trial: how it ended, and when. Moments are seconds of one clock."""

    end: TrialEnd
    began_s: float | None = None
    ended_s: float | None = None
    startup_s: float | None = None
    """The seconds until it trained; None where no record says it."""
    reports: int = 0
    """The intermediate values that it reported."""

    @property
    def running(self) -> Interval | None:
        """When the trial ran; None where no times are known."""
        if self.began_s is None or self.ended_s is None or self.began_s >= self.ended_s:
            return None
        return self.began_s, self.ended_s

    @property
    def took_s(self) -> float:
        """The seconds that the trial took; 0 where no times are known."""
        return self.running[1] - self.running[0] if self.running else 0.0

    @property
    def starting_s(self) -> float:
        """The seconds of its start-up; 0 where it is unknown, and all its time where it ended within the start-up."""
        return min(self.startup_s or 0.0, self.took_s)

    @property
    def training(self) -> Interval | None:
        """When the trial trained; None where it did not, or no times are known."""
        if self.running is None or self.starting_s >= self.took_s:
            return None
        return self.running[0] + self.starting_s, self.running[1]


@dataclass(frozen=True, kw_only=True, slots=True)
class StudyRecord:
    """What the database says of a study."""

    study: str
    trials: tuple[TrialTimes, ...]
    """The trials that have ended."""
    running: int = 0
    waiting: int = 0
    setup: Setup = field(default_factory=Setup)
    failures: Mapping[str, int] = field(default_factory=dict)
    """Kind of failure → number of trials, where the database names kinds."""
    is_ours: bool = False
    """Whether `tuner` ran the study: each probe then has its GPUs for itself."""
    has_sessions: bool = False
    """Whether a started trainer served several trials."""

    @property
    def on_cpu(self) -> bool:
        """Whether `tuner` ran the study without GPUs."""
        return self.is_ours and self.setup.gpus_per_trial is None


class Timeline:
    """How many intervals, such as the times of trials, overlap at each moment. Times are in seconds."""

    def __init__(self, intervals: Iterable[Interval]) -> None:
        """Count the intervals that cover each part of the time. Empty intervals count for nothing."""
        changes: Counter[float] = Counter()  # moment → by how much the number changes there
        for began_s, ended_s in intervals:
            if ended_s > began_s:
                changes[began_s] += 1
                changes[ended_s] -= 1
        moments_s = sorted(changes)
        self.seconds = np.diff(np.array(moments_s, dtype=float))
        """The length of each part of the time, in order. A part lasts as long as the same number of intervals does."""
        self.counts = np.cumsum([changes[at_s] for at_s in moments_s], dtype=int)[:-1]
        """The number of intervals in each part."""
        self.covered_s = float(self.seconds[self.counts > 0].sum())
        """The seconds with at least one interval."""
        self.gaps_s = tuple(self.seconds[self.counts == 0].tolist())
        """The seconds of each part without any interval, between the first and the last one."""
        self.most = int(self.counts.max(initial=0))
        """The largest number at once."""

    def mean(self, span_s: float) -> float:
        """Return the mean number of intervals at once over `span_s` seconds, in which all of them lie."""
        return float(self.seconds @ self.counts) / span_s

    def quantile(self, share: float, span_s: float) -> int:
        """Return a quantile, over `span_s` seconds, of the number of intervals at once; `share` 0.5 is the median.

        All intervals lie within these seconds.
        """
        seconds_by_number = np.bincount(self.counts, self.seconds, minlength=1)
        seconds_by_number[0] = span_s - self.covered_s  # with the time before and after all intervals
        number = int(np.searchsorted(np.cumsum(seconds_by_number), share * span_s))
        return min(number, self.most)  # rounding errors may lead beyond it

    def tenths(self) -> tuple[float, ...]:
        """Return the mean number of intervals at once in each tenth of the time that any covers; empty without any."""
        if not self.covered_s:
            return ()
        is_covered = self.counts > 0
        # at the end of each covered part: the covered seconds so far, and the seconds of all intervals together
        ends_s = np.cumsum([0.0, *self.seconds[is_covered]])
        interval_s = np.cumsum([0.0, *(self.seconds * self.counts)[is_covered]])
        interval_s_by_tenth = np.diff(np.interp(np.linspace(0.0, ends_s[-1], 11), ends_s, interval_s))
        return tuple((interval_s_by_tenth * 10 / ends_s[-1]).tolist())


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """The trials that ended alike."""

    trials: int
    share: float
    """The share of these trials among all ended trials."""
    mean_s: float | None
    """Their mean duration in seconds; None where no times are known."""
    total_s: float
    startup_s: float
    """The seconds of their start-ups, as far as these are known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AtOnce:
    """How many trials did something at once, while at least one trial ran."""

    mean: float
    usual: int
    """The median over time."""
    low: int
    high: int
    """In the middle half of the time, the number lay between `low` and `high`."""
    most: int
    tenths: tuple[float, ...]
    """The mean in each tenth of the covered time, in the order of time."""
    none_share: float
    """The share of the time with none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts(StudyRecord):
    """What a study did with its time."""

    ended: Mapping[TrialEnd, Ended]
    trial_s: float
    """The seconds of all ended trials together."""
    covered_s: float
    """The seconds with at least one ended trial."""
    empty_s: float
    """The seconds between the first start and the last end in which none of them ran, without pauses."""
    gaps: int
    """The number of pieces of `empty_s`."""
    longest_gap_s: float
    pauses: int
    """The gaps that are far longer than the usual one, as when a person comes back later."""
    paused_s: float
    """The seconds of all pauses."""
    startup_share: float | None
    """The share of start-ups in `trial_s`; None where the start-up is unknown."""
    running_at_once: AtOnce | None
    """None where the database has no times."""
    training_at_once: AtOnce | None
    """None where the start-up is unknown."""


def gather(record: StudyRecord) -> Facts:
    """Return what a study did with its time: the facts that a diagnosis starts from, computed from its trials."""
    trials = record.trials
    running = Timeline(trial.running for trial in trials if trial.running)
    at_once = _at_once(running, running.covered_s) if running.covered_s else None
    # the number of rounds, if all trials that run at once began and ended together
    rounds = sum(trial.running is not None for trial in trials) / max(at_once.usual if at_once else 1, 1)
    pauses_s = pauses(running.gaps_s, round(rounds))
    gaps_s = sorted(running.gaps_s)[: len(running.gaps_s) - len(pauses_s)]  # pauses are the longest gaps
    started = [trial for trial in trials if trial.took_s and trial.startup_s is not None]  # with a known start-up
    training = Timeline(trial.training for trial in started if trial.training)
    started_s = sum(trial.took_s for trial in started)
    return Facts(
        **{field.name: getattr(record, field.name) for field in fields(StudyRecord)},
        ended={end: _ended([trial for trial in trials if trial.end is end], len(trials)) for end in TrialEnd},
        trial_s=sum(trial.took_s for trial in trials),
        covered_s=running.covered_s,
        empty_s=sum(gaps_s),
        gaps=len(gaps_s),
        longest_gap_s=max(gaps_s, default=0.0),
        pauses=len(pauses_s),
        paused_s=sum(pauses_s),
        startup_share=sum(trial.starting_s for trial in started) / started_s if started else None,
        running_at_once=at_once,
        training_at_once=_at_once(training, running.covered_s) if started else None,
    )


def pauses(gaps_s: Sequence[float], rounds: int) -> list[float]:
    """Return the gaps that are pauses: they take more than a minute, and more than ten usual gaps (chosen).

    The usual gap is the longest of the shortest three quarters (chosen).

    Args:
        gaps_s: The seconds of each gap.
        rounds: The number of trials over how many usually run at once. Between two rounds, there may be no gap: then
            it counts with 0 s.
    """
    changes = max(len(gaps_s), rounds - 1)
    in_order_s = [0.0] * (changes - len(gaps_s)) + sorted(gaps_s)
    usual_s = in_order_s[int(0.75 * (changes - 1))] if changes > 1 else 0.0  # a single change has no usual gap
    return [gap_s for gap_s in gaps_s if gap_s > max(10.0 * usual_s, 60.0)]


def _ended(trials: Sequence[TrialTimes], of_all: int) -> Ended:
    """Return the number and the times of the trials with one end; `of_all` is the number of all ended trials."""
    durations_s = [trial.took_s for trial in trials if trial.took_s]
    return Ended(
        trials=len(trials),
        share=len(trials) / of_all,
        mean_s=fmean(durations_s) if durations_s else None,
        total_s=sum(durations_s),
        startup_s=sum(trial.starting_s for trial in trials),
    )


def _at_once(timeline: Timeline, span_s: float) -> AtOnce:
    """Return how many trials ran, or trained, at once over `span_s` seconds, in which the whole timeline lies."""
    low, usual, high = (timeline.quantile(share, span_s) for share in (0.25, 0.5, 0.75))
    return AtOnce(
        mean=timeline.mean(span_s),
        usual=usual,
        low=low,
        high=high,
        most=timeline.most,
        tenths=timeline.tenths(),
        none_share=max(0.0, 1.0 - timeline.covered_s / span_s),
    )


def estimated_startup(trials: Iterable[TrialTimes]) -> KnownFact[float] | None:
    """Return the seconds of a start-up, where the durations of a study's trials show it clearly; else None.

    A trial takes a start-up, and then about the same time for each intermediate value that it reports. So durations lie
    on a line over the number of values, and the start-up is the line's intercept. Long trials scatter more: the
    variance of a trial counts as proportional to its number of values (weighted least squares).

    It is clear from eight trials and three different numbers of values on, with a standard error of at most a fifth of
    the start-up or 2 % of the trials' mean duration (chosen). The intercept may not be far below 0, nor above the
    duration of the trials with the fewest values.
    """
    points = [(trial.reports, trial.took_s) for trial in trials if trial.reports and trial.took_s]
    if len(points) < 8 or len({reports for reports, _ in points}) < 3:
        return None
    reports, took_s = np.array(points, dtype=float).T
    (per_value_s, start_s), covariance = np.polyfit(reports, took_s, 1, w=reports**-0.5, cov=True)
    error_s = float(np.sqrt(covariance[1, 1]))
    fewest_s = float(took_s[reports == reports.min()].mean())  # of the trials with the fewest values
    is_line = per_value_s > 0.0 and -2.0 * error_s <= start_s <= fewest_s + 2.0 * error_s
    is_clear = error_s <= max(0.2 * start_s, 0.02 * float(took_s.mean()))
    if not (is_line and is_clear):
        return None
    return KnownFact(value=max(float(start_s), 0.0), source=f"estimated from {len(points)} trials, ± {error_s:.1f} s")


def with_estimated_startups(record: StudyRecord) -> StudyRecord:
    """Return the record with the start-up of each trial: of its own record, of an option, or estimated.

    Unchanged where none of these says it. The trials of `tuner` have it in their records, so none is estimated.
    """
    setup = record.setup
    if setup.startup_s is None and not record.is_ours:
        setup = replace(setup, startup_s=estimated_startup(record.trials))
    if setup.startup_s is None:
        return record
    usual_s = setup.startup_s.value
    trials = (replace(trial, startup_s=usual_s) if trial.startup_s is None else trial for trial in record.trials)
    return replace(record, setup=setup, trials=tuple(trials))
