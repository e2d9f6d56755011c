"""What is known of a study: the times of its trials, their start-ups, trials at once, and shares. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from itertools import accumulate, pairwise
from statistics import fmean
from typing import Generic, NamedTuple, TypeVar

Fact = TypeVar("Fact")
Interval = tuple[float, float]
"""A begin and an end, in seconds of one clock."""


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
    """`database`, `estimated …`, or the option that told it."""


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
    sampler: KnownFact[str] | None = None
    pruner: KnownFact[str] | None = None

    def or_else(self, other: "Setup") -> "Setup":
        """Return this setup, with the facts of another one where this one has none."""
        return Setup(**{one.name: getattr(self, one.name) or getattr(other, one.name) for one in fields(self)})


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
        """The seconds of its start-up as far as they are known; a trial that ended earlier was starting until then."""
        return min(self.startup_s or 0.0, self.took_s)

    @property
    def training(self) -> Interval | None:
        """When the trial trained; None where it did not, or no times are known."""
        if self.running is None or self.starting_s >= self.took_s:
            return None
        return self.running[0] + self.starting_s, self.running[1]


@dataclass(frozen=True, kw_only=True, slots=True)
class _OfStudy:
    """What the database says of a study, beside the times of its trials."""

    study: str
    running: int = 0
    waiting: int = 0
    setup: Setup = field(default_factory=Setup)
    failures: Mapping[str, int] = field(default_factory=dict)
    """Kind of failure → number of trials, where the database names kinds."""
    is_ours: bool = False
    """Whether `tuner` ran the study: each probe then has its GPUs for itself."""
    has_sessions: bool = False
    """Whether a started trainer served several trials."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StudyRecord(_OfStudy):
    """What the database says of a study."""

    trials: tuple[TrialTimes, ...]
    """Those that have ended."""


TENTHS = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
    """How long how many intervals overlapped, in the order of time."""

    parts: tuple[tuple[float, int], ...]
    """Seconds, and the number of intervals during them."""

    @property
    def covered_s(self) -> float:
        """The seconds with at least one interval."""
        return sum(seconds for seconds, count in self.parts if count)

    @property
    def empty_s(self) -> float:
        """The seconds without any, between the first and the last interval."""
        return sum(seconds for seconds, count in self.parts if not count)

    @property
    def gaps_s(self) -> tuple[float, ...]:
        """The seconds of each time without any, between the first and the last interval."""
        return tuple(seconds for seconds, count in self.parts if not count)

    @property
    def most(self) -> int:
        """The largest number at once."""
        return max((count for _, count in self.parts), default=0)

    def mean(self, whole_s: float) -> float:
        """Return the mean number at once over `whole_s` seconds, which hold all intervals."""
        return sum(seconds * count for seconds, count in self.parts) / whole_s

    def quantile(self, share: float, whole_s: float) -> int:
        """Return the number at once that is exceeded for at most `1 - share` of `whole_s` seconds."""
        lengths = {0: whole_s - self.covered_s}
        for seconds, count in self.parts:
            if count:
                lengths[count] = lengths.get(count, 0.0) + seconds
        counts = sorted(lengths)
        ends = accumulate(lengths[count] for count in counts)
        return next((count for count, end_s in zip(counts, ends, strict=True) if end_s >= share * whole_s), self.most)

    def tenths(self) -> tuple[float, ...]:
        """Return the mean number at once in each tenth of the covered time; empty where nothing is covered."""
        length_s = self.covered_s / TENTHS
        sums, at_s = [0.0] * TENTHS, 0.0
        for seconds, count in self.parts:
            if count:
                for tenth in range(TENTHS):
                    overlap_s = min(at_s + seconds, (tenth + 1) * length_s) - max(at_s, tenth * length_s)
                    sums[tenth] += max(overlap_s, 0.0) * count
                at_s += seconds
        return tuple(total / length_s for total in sums) if length_s else ()


def sweep(intervals: Iterable[Interval]) -> Timeline:
    """Return how many of the intervals overlap at each time; empty intervals count for nothing."""
    changes: dict[float, int] = {}
    for began_s, ended_s in intervals:
        if ended_s > began_s:
            changes[began_s] = changes.get(began_s, 0) + 1
            changes[ended_s] = changes.get(ended_s, 0) - 1
    parts, count = [], 0
    for (at_s, change), (next_s, _) in pairwise(sorted(changes.items())):
        count += change
        parts.append((next_s - at_s, count))
    return Timeline(parts=tuple(parts))


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """The trials that ended alike."""

    trials: int
    share: float
    """Of all ended trials."""
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
    """For the middle half of the time, the number lay between these two."""
    most: int
    tenths: tuple[float, ...]
    """The mean in each tenth of the covered time, in the order of time."""
    none_share: float
    """The share of the time with none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts(_OfStudy):
    """What a study did with its time."""

    ended: Mapping[TrialEnd, Ended]
    trial_s: float
    """The seconds of all ended trials together."""
    covered_s: float
    """The seconds with at least one ended trial."""
    empty_s: float
    """The seconds between the first start and the last end in which none of them ran."""
    gaps: int
    """In so many pieces."""
    longest_gap_s: float
    startup_share: float | None
    """The share of start-ups in `trial_s`; None where the start-up is unknown."""
    running_at_once: AtOnce | None
    """None where the database has no times."""
    training_at_once: AtOnce | None
    """None where the start-up is unknown."""

    @property
    def trials(self) -> int:
        """The number of ended trials."""
        return sum(one.trials for one in self.ended.values())


def gather(record: StudyRecord) -> Facts:
    """Return the facts of a study."""
    trials, running = record.trials, sweep(filter(None, (one.running for one in record.trials)))
    known = [one for one in trials if one.took_s and one.startup_s is not None]
    training = sweep(filter(None, (one.training for one in known)))
    return Facts(
        **{one.name: getattr(record, one.name) for one in fields(_OfStudy)},
        ended={end: _ended([one for one in trials if one.end is end], len(trials)) for end in TrialEnd},
        trial_s=sum(one.took_s for one in trials),
        covered_s=running.covered_s,
        empty_s=running.empty_s,
        gaps=len(running.gaps_s),
        longest_gap_s=max(running.gaps_s, default=0.0),
        startup_share=sum(one.starting_s for one in known) / sum(one.took_s for one in known) if known else None,
        running_at_once=_at_once(running, running.covered_s) if running.covered_s else None,
        training_at_once=_at_once(training, running.covered_s) if known else None,
    )


def _ended(trials: Sequence[TrialTimes], of: int) -> Ended:
    took = [one.took_s for one in trials if one.took_s]
    return Ended(
        trials=len(trials),
        share=len(trials) / of,
        mean_s=fmean(took) if took else None,
        total_s=sum(took),
        startup_s=sum(one.starting_s for one in trials),
    )


def _at_once(timeline: Timeline, whole_s: float) -> AtOnce:
    low, usual, high = (timeline.quantile(share, whole_s) for share in (0.25, 0.5, 0.75))
    return AtOnce(
        mean=timeline.mean(whole_s),
        usual=usual,
        low=low,
        high=high,
        most=timeline.most,
        tenths=timeline.tenths(),
        none_share=max(0.0, 1.0 - timeline.covered_s / whole_s),
    )


LEAST_TRIALS = 8
"""With fewer trials no line is drawn."""
LEAST_KINDS = 3
"""With fewer different numbers of reports no line is drawn."""
LARGEST_ERROR = 0.2
"""The largest standard error, as a share of the start-up."""
SMALL = 0.02
"""An error of this share of the trials' mean duration is small enough, too."""


class StartEstimate(NamedTuple):
    """A start-up in seconds, its standard error, and the number of trials behind it."""

    startup_s: float
    error_s: float
    trials: int


def estimate(trials: Iterable[TrialTimes]) -> StartEstimate | None:
    """Return the time that trials took beside what they report, where their durations show it clearly; else None.

    A trial takes a start-up, and then about the same time for each intermediate value. So durations lie on a line over
    the number of values, and the start-up is where the line begins. Long trials scatter more: the variance of a
    trial counts as proportional to its number of values (weighted least squares).
    """
    points = [(one.reports, one.took_s) for one in trials if one.reports and one.took_s]
    if len(points) < LEAST_TRIALS or len({reports for reports, _ in points}) < LEAST_KINDS:
        return None
    import numpy as np  # noqa: PLC0415 - a tenth of a second, which most commands do not need

    reports, took = np.array(points, dtype=float).T
    (step_s, start_s), covariance = np.polyfit(reports, took, 1, w=reports**-0.5, cov=True)
    error_s = float(np.sqrt(covariance[1, 1]))
    shortest_s = float(took[reports == reports.min()].mean())
    is_line = step_s > 0.0 and -2.0 * error_s <= start_s <= shortest_s + 2.0 * error_s
    is_clear = error_s <= max(LARGEST_ERROR * start_s, SMALL * float(took.mean()))
    return StartEstimate(max(float(start_s), 0.0), error_s, len(points)) if is_line and is_clear else None


THREADS_S, PROCESSES_S = 0.1, 2.0
"""Threads of one process begin their first trials within so many seconds for each; processes take longer to start."""


def with_n_jobs(record: StudyRecord) -> StudyRecord:
    """Return a study that says whether its trials run in threads or in processes, where the first starts show it.

    A process with `n_jobs` begins so many trials at once. Processes import their libraries first, each in a time of
    its own. Starts at the very same moment say nothing: some databases keep whole seconds.
    """
    facts = gather(record)
    usual = facts.running_at_once.usual if facts.running_at_once else 0
    began_s = sorted(one.running[0] for one in record.trials if one.running)[:usual]
    if record.setup.n_jobs is not None or record.is_ours or usual < 2 or len(began_s) < usual:
        return record
    spread_s = began_s[-1] - began_s[0]
    if spread_s <= 0.0 or THREADS_S * usual < spread_s < PROCESSES_S:
        return record
    source = f"estimated: the first {usual} trials began within {spread_s:.2g} s"
    n_jobs = KnownFact(value=usual if spread_s < PROCESSES_S else 1, source=source)
    return replace(record, setup=replace(record.setup, n_jobs=n_jobs))


def with_startups(record: StudyRecord) -> StudyRecord:
    """Return a study whose trials all have their start-up, where a record, an option or the durations say it."""
    setup = record.setup
    if setup.startup_s is None and not record.is_ours and (line := estimate(record.trials)):
        source = f"estimated from {line.trials} trials, ± {line.error_s:.1f} s"
        setup = replace(setup, startup_s=KnownFact(value=line.startup_s, source=source))
    if setup.startup_s is None:
        return record
    usual_s = setup.startup_s.value
    trials = (replace(one, startup_s=usual_s) if one.startup_s is None else one for one in record.trials)
    return replace(record, setup=setup, trials=tuple(trials))
