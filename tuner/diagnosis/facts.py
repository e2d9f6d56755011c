"""The numbers of a study, from the times of its trials: shares, start-up, trials at once. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from tuner.diagnosis.record import End, Setup, StudyRecord, TrialTimes
from tuner.diagnosis.timeline import Timeline, sweep


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
class Facts:
    """What a study did with its time."""

    study: str
    ended: Mapping[End, Ended]
    running: int
    waiting: int
    trial_s: float
    """The seconds of all ended trials together."""
    covered_s: float
    """The seconds with at least one ended trial."""
    empty_s: float
    """The seconds between the first start and the last end in which none of them ran."""
    startup_share: float | None
    """The share of start-ups in `trial_s`; None where the start-up is unknown."""
    running_at_once: AtOnce | None
    """None where the database has no times."""
    training_at_once: AtOnce | None
    """None where the start-up is unknown."""
    setup: Setup
    failures: Mapping[str, int]
    is_ours: bool
    has_sessions: bool

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
        study=record.study,
        ended={end: _ended([one for one in trials if one.end is end], len(trials)) for end in End},
        running=record.running,
        waiting=record.waiting,
        trial_s=sum(one.took_s for one in trials),
        covered_s=running.covered_s,
        empty_s=running.empty_s,
        startup_share=sum(one.starting_s for one in known) / sum(one.took_s for one in known) if known else None,
        running_at_once=_at_once(running, running.covered_s) if running.covered_s else None,
        training_at_once=_at_once(training, running.covered_s) if known else None,
        setup=record.setup,
        failures=record.failures,
        is_ours=record.is_ours,
        has_sessions=record.has_sessions,
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
