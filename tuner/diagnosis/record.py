"""What is known of a study before any conclusion: the times of its trials, and the setup that they ran with."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Generic, TypeVar

Fact = TypeVar("Fact")
Interval = tuple[float, float]
"""A begin and an end, in seconds of one clock."""


class End(StrEnum):
    """How a trial ended."""

    COMPLETE = "complete"
    PRUNED = "pruned"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    """The user stopped it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Known(Generic[Fact]):
    """A fact, and who says so."""

    value: Fact
    source: str
    """`database`, `estimated …`, or the option that told it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """What the trials ran with, as far as it is known."""

    startup_s: Known[float] | None = None
    """The seconds from the start of a trial until it trains."""
    loader_workers: Known[float] | None = None
    """The worker processes of one trial that load data."""
    cores: Known[int] | None = None
    gpus: Known[int] | None = None
    gpu_memory_gib: Known[float] | None = None
    """The memory of one GPU."""
    memory_used_gib: Known[float] | None = None
    """The memory of one GPU that is in use while the usual number of trials runs."""
    duty_pct: Known[float] | None = None
    """The mean utilisation of the GPUs over the whole study."""
    sampler: Known[str] | None = None
    pruner: Known[str] | None = None

    def or_else(self, other: "Setup") -> "Setup":
        """Return this setup, with the facts of another one where this one has none."""
        return Setup(**{one.name: getattr(self, one.name) or getattr(other, one.name) for one in fields(self)})


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialTimes:
    """An ended trial: how it ended, and when. Moments are seconds of one clock."""

    end: End
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
class StudyRecord:
    """What the database says of a study."""

    study: str
    trials: tuple[TrialTimes, ...]
    """Those that have ended."""
    running: int = 0
    waiting: int = 0
    setup: Setup = field(default_factory=Setup)
    failures: Mapping[str, int] = field(default_factory=dict)
    """Kind of failure → number of trials, where the database names kinds."""
    is_ours: bool = False
    """Whether `tuner` ran the study: each probe then has its GPUs for itself."""
    has_sessions: bool = False
    """Whether a started trainer served several trials."""
