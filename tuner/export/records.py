"""What the database tells about a study, as values: its cases, its trials, and how many ended how."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tuner.kept.case import KeptCase
from tuner.kept.probe import INTERRUPTED, OK, PRUNED, KeptProbe
from tuner.probe.result import DeviceSummary
from tuner.search import standing
from tuner.study.space import LADDER, VARIANT, Config, Value

NO_TRIALS = "no_trials"
RUNNING = "RUNNING"
COMPLETE = standing.COMPLETE
FINISHED = (standing.COMPLETE, standing.PRUNED, standing.FAIL)
"""The states, as the database spells them, of trials that are over."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseRecord:
    """One case of a study; `kept` is empty where the database holds no record of the case."""

    study_id: int
    name: str
    kept: KeptCase = field(default_factory=KeptCase)

    @property
    def method(self) -> str:
        """The learning method."""
        return self.kept.method or self.name.split("_", 1)[0]

    def default_at(self, rung: Value | None) -> Config:
        """Give the config that others of a rung are compared with; an empty one where the study does not say."""
        return next((config for config in self.kept.defaults if config.get(LADDER) == rung), {})

    def changes_learning(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        """Name the parameters of a config that change what is learnt, other than the default of its rung has them."""
        default, learning = self.default_at(config.get(LADDER)), self.kept.learning
        return tuple(name for name in config if name in learning and config[name] != default.get(name))

    @property
    def objective(self) -> str:
        """What the study maximises: a metric, or several with commas between."""
        return self.kept.objective or "value"

    @property
    def objectives(self) -> tuple[str, ...]:
        """The names of the metrics that the study maximises; `value` of a trial is the first."""
        return tuple(self.objective.split(","))


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialRecord:
    """One trial; `probe` is empty as long as the trial runs.

    Where `readings` is above 1 it is the newest of so many of its config, with what these come to for its numbers.
    """

    case: str
    number: int
    state: str
    value: float | None = None
    started: datetime | None = None
    """UTC, naive."""
    completed: datetime | None = None
    """UTC, naive."""
    probe: KeptProbe = field(default_factory=KeptProbe)
    readings: int = 1

    @property
    def config(self) -> Config:
        """The parameters that were active."""
        return self.probe.config

    @property
    def variant(self) -> Value | None:
        """How the agent file was changed."""
        return self.config.get(VARIANT)

    @property
    def metrics(self) -> Mapping[str, Any]:
        """Metric name → number, None where it could not be measured."""
        return self.probe.metrics

    @property
    def devices(self) -> tuple[DeviceSummary, ...]:
        """The summary of each device, in rank order."""
        return self.probe.devices

    @property
    def measured_on(self) -> str | None:
        """Which devices measured it, whatever the trainer calls them; None where that was not kept."""
        return self.probe.measured_on

    @property
    def status(self) -> str | None:
        """`ok`, `pruned` or a failure kind; None as long as it runs."""
        return status_of(self.state, self.probe.status)


@dataclass(frozen=True, kw_only=True, slots=True)
class Tally:
    """How many trials of a case ended in one way on the same devices, and the seconds their probes took together."""

    state: str
    status: str | None
    trials: int
    probe_s: float = 0.0
    measured_on: str | None = None
    """As of a `TrialRecord`."""


def status_of(state: str, reported: str | None) -> str | None:
    """Give the status of a trial: a finished one whose probe left nothing was interrupted."""
    return reported or (INTERRUPTED if state in FINISHED else None)


def finished(tallies: Iterable[Tally]) -> int:
    """Count the trials that are over."""
    return sum(tally.trials for tally in tallies if tally.state in FINISHED)


def commonest_failure(tallies: Iterable[Tally]) -> str | None:
    """Give the failure kind of most trials, the first by name among equals.

    The pruner's stops are no failures, an interruption is one only where there is no other.
    """
    counts: Counter[str] = Counter()
    for tally in tallies:
        if tally.status and tally.status not in (OK, PRUNED):
            counts[tally.status] += tally.trials
    return max(sorted(counts), key=lambda kind: (kind != INTERRUPTED, counts[kind]), default=None)


def status_without_best(tallies: Sequence[Tally]) -> str:
    """Give the status of a case without a best: its commonest failure, `pruned` where nothing failed, `no_trials`."""
    pruned = PRUNED if any(tally.status == PRUNED for tally in tallies) else None
    return commonest_failure(tallies) or pruned or NO_TRIALS
