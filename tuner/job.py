"""The job: what the work on a study needs, and who watches it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tuner.errors import StudyError
from tuner.outcome import CaseOutcome, Pace
from tuner.probe.plan import ProbePlan
from tuner.probe.result import ProbeResult
from tuner.probe.stop import Stop
from tuner.purpose import SEARCH, Purpose
from tuner.search.standing import Standing
from tuner.search.verdict import Verdict
from tuner.store.asked import Asked
from tuner.store.database import Database
from tuner.store.dropped import TakenBack
from tuner.store.opening import check_study
from tuner.study.batch import BatchFit
from tuner.study.cases import Case
from tuner.study.spec import ProbeSpec, StudySpec
from tuner.workbench import Workbench

Probe = Callable[[ProbePlan, Stop], ProbeResult]
"""Probes once; the second argument may end the probe early."""


class Watcher(Protocol):
    """Gets every event of a running study, for example to show it."""

    def case_started(
        self, case: Case, *, finished: int, target: int | None, best: Standing | None, taken_back: TakenBack
    ) -> None:
        """Work on a case begins; `target` is None where no number of trials ends the work."""
        ...

    def calibrating(self, case: Case, rungs: Sequence[int]) -> None:
        """A calibration begins, because the case's `auto` ladder has no rungs yet.

        The probes at the first two of these rungs that run decide the rungs of the ladder.
        """
        ...

    def rungs_fixed(self, case: Case, rungs: Sequence[int]) -> None:
        """The case's `auto` ladder has these rungs, computed now or by an earlier run."""
        ...

    def fitting_batch(self, case: Case, parameter: str) -> None:
        """Probes begin from which the batch size of a case is worked out; the study has none yet."""
        ...

    def batch_fitted(self, case: Case, parameter: str, batch: BatchFit) -> None:
        """The case's batch size that is `auto` has this value, worked out now or by an earlier run."""
        ...

    def probe_started(self, case: Case, asked: Asked, *, limits: ProbeSpec, left_s: float | None) -> None:
        """A config is about to be launched.

        `left_s` are the seconds until the search probably ends; None where nothing tells.
        """
        ...

    def still_running(self) -> None:
        """The running probe still runs. This is called some twenty times a second, so it returns quickly."""
        ...

    def iteration(self, result: ProbeResult, objective: float | None, error: float | None) -> None:
        """The running probe has completed an iteration; `result` is what is known so far.

        `objective` is the first objective, and `error` its standard error.
        """
        ...

    def probe_ended(
        self,
        case: Case,
        asked: Asked,
        result: ProbeResult,
        verdict: Verdict,
        *,
        leads: bool,
        best: Standing | None,
        pace: Pace,
    ) -> None:
        """The result of a config is stored; `leads` says whether the config alone is the `best` so far."""
        ...

    def case_ended(self, outcome: CaseOutcome) -> None:
        """Work on a case has ended."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What the work on a study needs: its bench, its database, a prober, a watcher, and what may stop it."""

    bench: Workbench
    database: Database
    probe: Probe
    watcher: Watcher
    interrupted: Callable[[], bool]
    """Returns whether the user wants to stop, or the time is over."""
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
