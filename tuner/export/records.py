"""What the exports read from the database, as values: cases, trials, and counts of trials."""

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
"""The states of ended trials, as the database spells them."""


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
        """Return the default config of a rung, with which other configs are compared; empty where it is unknown."""
        return next((config for config in self.kept.defaults if config.get(LADDER) == rung), {})

    def changes_learning(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the parameters that change what is learnt and whose values differ from the default of the rung."""
        default, learning = self.default_at(config.get(LADDER)), self.kept.learning
        return tuple(name for name in config if name in learning and config[name] != default.get(name))

    @property
    def objective(self) -> str:
        """The metric that the study maximises; several metrics are separated by commas."""
        return self.kept.objective or "value"

    @property
    def objectives(self) -> tuple[str, ...]:
        """The names of the metrics that the study maximises. A trial's `value` is the first of them."""
        return tuple(self.objective.split(","))


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialRecord:
    """One trial, or several pooled trials of one config. `probe` is empty while the trial runs.

    If `readings` is above 1, this is the newest of that many trials, with the pooled numbers of all of them.
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
        """The parameters of the config that the probe used."""
        return self.probe.config

    @property
    def variant(self) -> Value | None:
        """How the agent file was changed."""
        return self.config.get(VARIANT)

    @property
    def metrics(self) -> Mapping[str, Any]:
        """Metric name → number; None where the metric could not be measured."""
        return self.probe.metrics

    @property
    def devices(self) -> tuple[DeviceSummary, ...]:
        """The summary of each device, in rank order."""
        return self.probe.devices

    @property
    def measured_on(self) -> str | None:
        """The identities of the devices that measured the trial; None where they are unknown."""
        return self.probe.measured_on

    @property
    def status(self) -> str | None:
        """`ok`, `pruned` or a failure kind; None while the trial runs."""
        return status_of(self.state, self.probe.status)


@dataclass(frozen=True, kw_only=True, slots=True)
class Tally:
    """How many trials of a case have the same state, status and devices, and how many seconds their probes took."""

    state: str
    status: str | None
    trials: int
    probe_s: float = 0.0
    measured_on: str | None = None
    """See `TrialRecord.measured_on`."""


def status_of(state: str, reported: str | None) -> str | None:
    """Return the status of a trial. An ended trial whose probe reported nothing was interrupted."""
    return reported or (INTERRUPTED if state in FINISHED else None)


def finished(tallies: Iterable[Tally]) -> int:
    """Count the trials that have ended."""
    return sum(tally.trials for tally in tallies if tally.state in FINISHED)


def commonest_failure(tallies: Iterable[Tally]) -> str | None:
    """Return the most frequent failure kind, the first by name among equals.

    A stop by the pruner is not a failure. An interruption counts only if there is no other failure.
    """
    counts: Counter[str] = Counter()
    for tally in tallies:
        if tally.status and tally.status not in (OK, PRUNED):
            counts[tally.status] += tally.trials
    return max(sorted(counts), key=lambda kind: (kind != INTERRUPTED, counts[kind]), default=None)


def status_without_best(tallies: Sequence[Tally]) -> str:
    """Return the status of a case without a best: its commonest failure, otherwise `pruned` or `no_trials`."""
    pruned = PRUNED if any(tally.status == PRUNED for tally in tallies) else None
    return commonest_failure(tallies) or pruned or NO_TRIALS
