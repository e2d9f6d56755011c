"""The job: what the work on a study needs, and who watches it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.errors import StudyError
from tuner.probe.plan import ProbePlan
from tuner.probe.protocols import Clock
from tuner.probe.result import ProbeResult
from tuner.probe.stop import Stop
from tuner.purpose import SEARCH, Purpose
from tuner.running.events import Event, Watcher
from tuner.store.database import Database
from tuner.store.opening import check_study
from tuner.study.cases import Case
from tuner.study.spec import StudySpec
from tuner.workbench import Workbench

Probe = Callable[[ProbePlan, Stop], ProbeResult]
"""Probes once; the second argument may end the probe early."""


def unwatched(_: Event) -> None:
    """Show nothing: a watcher for those who do not watch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pulse:
    """How often a watcher hears of the running probe."""

    every_s: float
    clock: Clock
    utilisation: Callable[[], Sequence[float | None]] = tuple
    """Returns how busy each device was since the last call; see `Prober.utilisation`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What the work on a study needs: its bench, its database, a prober, a watcher, and what may stop it."""

    bench: Workbench
    database: Database
    probe: Probe
    interrupted: Callable[[], bool]
    """Returns whether the user wants to stop, or the time is over."""
    watcher: Watcher = unwatched
    pulse: Pulse | None = None
    """How often the watcher hears of the running probe; None where it does not."""
    has_time: Callable[[float | None], bool] = lambda _: True
    """Returns whether a probe of so many expected seconds may begin; None stands for an unknown length."""
    purpose: Purpose = SEARCH
    trials: int | None = None
    """The number of finished trials per case; None for the study's own number."""
    open_session: Callable[[], str | None] = lambda: None
    """Returns the key of the open session; None where no session is open."""
    wait: Callable[[], None] | None = None
    """Waits a moment for the probes of other workers; None where the work ends while they still probe."""
    simulated: bool = False
    """Whether probes take no time, because a recorded table answers them."""
    recording: Mapping[str, Any] | None = None
    """How the case is recorded, where it is: the JSON of `Circumstances`, which the case's study keeps."""

    def target(self, spec: StudySpec) -> int | None:
        """Return the number of finished trials that ends the work on a case; None where no number does."""
        return (self.trials or spec.search.trials) if self.purpose.limited else None


def check(job: Job, case: Case) -> None:
    """Check whether a case can be searched and its study be resumed; this begins nothing.

    Raises StudyError with the case's name where no sampler can be made, and StoreError where the case's study in the
    database differs. The search itself makes a new sampler later, when the cases before it have shown their best.
    """
    check_study(job.database, job.bench.study_name(case), job.bench.identity_for(case))
    space, spec = job.bench.space_for(case), job.bench.spec_for(case)
    try:
        job.purpose.strategy(space, spec, 0, tuple)
    except StudyError as error:
        raise StudyError(f"case {case.name}: {error}") from error
