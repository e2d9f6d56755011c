"""The score of each config of a race after some time of training, with its standard error. Pure.

A race trains a few configs for the same time, each with several random seeds. The score of a run is what its trainer
prints as the return, so it says how much has been learnt.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, inf, sqrt
from statistics import fmean, variance
from typing import Generic, NamedTuple, TypeVar

from tuner.probe import student_tail
from tuner.records.case_record import RunRecord

MOST_POINTS = 300
"""The most points that are kept of a curve."""

Curve = Sequence[tuple[float, float]]
"""The scores of a run in order: seconds of training, and the score then."""
Key = TypeVar("Key")
"""Says which config: whatever the caller knows a config by."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mean:
    """The mean score of several runs of a config."""

    value: float
    variance: float | None
    """The variance between the runs; None for a single run."""
    runs: int

    @property
    def error(self) -> float | None:
        """The standard error of the mean; None for a single run."""
        return None if self.variance is None else sqrt(self.variance / self.runs)


class Lead(NamedTuple):
    """How far one mean is above another, as Student's t statistic."""

    errors: float
    """The difference of the means, divided by its standard error."""
    freedom: int
    """The degrees of freedom of Student's t."""

    @property
    def chance(self) -> float:
        """The p-value: how probably two equal configs would differ at least so much by chance (Student's t test)."""
        return student_tail(abs(self.errors), self.freedom)

    @property
    def is_clear(self) -> bool:
        """Whether the lead is statistically significant: `chance` is at most 5 %."""
        return self.chance <= 0.05


def score_at(curve: Curve, seconds: float) -> float | None:
    """Return how much a run has learnt in `seconds` of training; None where it has no score by then.

    It is the mean over the last quarter of this time, because a single score is noisy. Each score holds until the next.
    """
    known = [(at, score) for at, score in curve if at <= seconds]
    if not known:
        return None
    begin = seconds * 0.75
    last_score = known[-1][1]
    # A score from before the quarter counts from its beginning on; the last score holds until its end.
    steps = [(max(at, begin), score) for at, score in known]
    steps.append((seconds, last_score))
    durations_s = [max(0.0, until - since) for (since, _), (until, _) in pairwise(steps)]
    if not sum(durations_s):  # the only score came at the very end
        return last_score
    return fmean((score for _, score in known), weights=durations_s)


@dataclass(frozen=True, kw_only=True, slots=True)
class RaceStanding(Generic[Key]):
    """Where a config stands in a race."""

    entrant: Key
    seconds: float
    """The longest time for which the config was trained, in seconds."""
    mean: Mean | None
    """Its mean score after this time; None where no run has a score."""
    runs: Sequence[RunRecord]

    @property
    def failure(self) -> str | None:
        """Why the config left the race; None where it did not."""
        return next((run.why_out for run in self.runs if run.why_out), None)


def runs_that_count(runs: Iterable[RunRecord]) -> list[RunRecord]:
    """Return the runs of a config whose scores count: the longest complete run with each random seed.

    A run is complete if it has trained as long as it was to train. If a run of the config has failed, none counts.
    """
    longest: dict[int, RunRecord] = {}
    for run in runs:
        if run.failure is not None:
            return []
        before = longest.get(run.seed)
        if run.trained_s >= run.seconds and (before is None or run.seconds > before.seconds):
            longest[run.seed] = run
    return list(longest.values())


def standings(runs_of: Mapping[Key, Sequence[RunRecord]]) -> list[RaceStanding[Key]]:
    """Return where each config of a race stands: configs that trained longest first, then by score.

    `runs_of`: a config → its runs.
    """
    places: list[RaceStanding[Key]] = []
    for entrant, runs in runs_of.items():
        seconds = max((run.seconds for run in runs_that_count(runs)), default=0.0)
        mean = means({entrant: runs}, seconds).get(entrant)
        places.append(RaceStanding(entrant=entrant, seconds=seconds, mean=mean, runs=runs))
    return sorted(places, key=lambda place: (-place.seconds, -(place.mean.value if place.mean else -inf)))


def means(runs_of: Mapping[Key, Sequence[RunRecord]], seconds: float) -> dict[Key, Mean]:
    """Return config → its mean score after `seconds` of training, over the runs that count and have trained so long.

    A config without such a run is left out.
    """
    mean_of: dict[Key, Mean] = {}
    for entrant, runs in runs_of.items():
        scores_at_time = (score_at(run.curve, seconds) for run in runs_that_count(runs) if run.seconds >= seconds)
        scores = [score for score in scores_at_time if score is not None]
        if scores:
            between_runs = variance(scores) if len(scores) > 1 else None
            mean_of[entrant] = Mean(value=fmean(scores), variance=between_runs, runs=len(scores))
    return mean_of


def lead_of(first: Mean, second: Mean) -> Lead | None:
    """Return how far the first mean is above the second, in standard errors; None where the error is unknown.

    It is unknown where each mean is of a single run, or where the runs do not differ. The variance is pooled over the
    runs of the two configs, as in Student's t test. Other configs do not count, because their scores may scatter a
    hundred times as much.
    """
    freedom = first.runs + second.runs - 2
    squares = sum((mean.runs - 1) * (mean.variance or 0.0) for mean in (first, second))
    if not freedom or not squares:
        return None
    pooled_variance = squares / freedom
    error = sqrt(pooled_variance * (1 / first.runs + 1 / second.runs))
    return Lead(errors=(first.value - second.value) / error, freedom=freedom)


def are_constant(curves: Sequence[Curve]) -> bool:
    """Return whether the scores of a race never change, so that they cannot tell which config learns fastest.

    Either all runs have the same score throughout, or each run keeps its first score over several points.
    """
    if len({score for curve in curves for _, score in curve}) == 1:
        return True
    return all(len(curve) > 1 and len({score for _, score in curve}) == 1 for curve in curves)


def thinned(curve: Curve) -> tuple[tuple[float, float], ...]:
    """Return a curve that is short enough to be stored: each of its points is the mean of several scores in a row."""
    size = max(ceil(len(curve) / MOST_POINTS), 1)
    parts = [curve[start : start + size] for start in range(0, len(curve), size)]
    return tuple((fmean(at for at, _ in part), fmean(score for _, score in part)) for part in parts)
