"""The parts of the work on a study: the job itself, its watcher, its budget of time, and the outcome of a case."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol

from tuner.errors import StudyError
from tuner.probe.kinds import Blame
from tuner.probe.plan import ProbePlan
from tuner.probe.protocols import Clock
from tuner.probe.result import Failure, ProbeResult
from tuner.probe.stop import Stop
from tuner.purpose import SEARCH, Purpose
from tuner.search.standing import BROKEN_AFTER
from tuner.search.verdict import Verdict
from tuner.store.database import Database
from tuner.store.dropped import Recovered
from tuner.store.opening import check_study
from tuner.store.study import Asked
from tuner.study.cases import Case
from tuner.units import HOUR_S
from tuner.workbench import Workbench

CRASHES_AFTER_A_RESULT = 6
"""This many unexplained failures in a row stop a case: three configs, each in a session and by the plain command."""
HOST_FAILURES_IN_A_ROW = 4
"""This many failures in a row with the machine at fault stop a case: two configs tried twice, or a busy card."""

Probe = Callable[[ProbePlan, Stop], ProbeResult]
"""Probes once; the second argument may end the probe early."""


class Ending(StrEnum):
    """Why the work on a case ended."""

    ALREADY = "nothing left to do"
    TARGET = "target reached"
    EXHAUSTED = "nothing left that is worth a probe"
    ELSEWHERE = "the rest runs in other workers"
    SETUP = "stopped: the set-up is at fault"
    CRASHES = "stopped: the trainer keeps crashing"
    HOST = "stopped: the machine keeps failing"
    UNREAD = "stopped: the objective is not measured"
    INTERRUPTED = "interrupted"


def given_up(result: ProbeResult, streak: int, *, has_run: bool) -> Ending | None:
    """Return why a case stops after a probe; None to go on.

    A failure in a session does not stop a case, because the plain command may still succeed. `streak` counts the
    failures in a row that are no config's fault. `has_run` says whether any probe has measured the objective.
    """
    if result.failure is None:
        return Ending.UNREAD if streak >= BROKEN_AFTER else None
    if result.warm:
        return None
    match result.failure.kind.blame:
        case Blame.SETUP:
            return Ending.SETUP
        case Blame.UNKNOWN if streak >= (CRASHES_AFTER_A_RESULT if has_run else BROKEN_AFTER):
            return Ending.CRASHES
        case Blame.HOST if streak >= HOST_FAILURES_IN_A_ROW:
            return Ending.HOST
        case _:
            return None


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseOutcome:
    """How the work on one case ended; `failure` says what to repair where the work stopped early."""

    case: Case
    ending: Ending
    probed: int
    failure: Failure | None = None
    why: str | None = None
    """Why no config is worth a probe any more, in the sampler's words; or which objective was not measured."""

    @property
    def stopped(self) -> bool:
        """Whether the work ended early."""
        return self.failure is not None or self.ending in {Ending.UNREAD, Ending.INTERRUPTED}


class Watcher(Protocol):
    """Gets every event of a running study, for example to show it."""

    def case_started(self, case: Case, *, finished: int, target: int | None, recovered: Recovered) -> None:
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

    def probe_started(self, case: Case, asked: Asked) -> None:
        """A config is about to be launched."""
        ...

    def iteration(self, result: ProbeResult, objective: float | None) -> None:
        """The running probe has completed an iteration; `result` is what is known so far."""
        ...

    def told(self, case: Case, asked: Asked, result: ProbeResult, verdict: Verdict, *, incumbent: float | None) -> None:
        """The result of a config is stored; `incumbent` is the best objective so far."""
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
    recording: Mapping[str, Any] | None = None
    """How the case is recorded, where it is: the JSON of `Circumstances`, which the case's study keeps."""


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


class Budget:
    """The time that probes may take: `hours` from now on, or no limit where `hours` is None."""

    def __init__(self, clock: Clock, hours: float | None) -> None:
        self._clock = clock
        self.whole_s = math.inf if hours is None else hours * HOUR_S
        self._end_s = clock.now() + self.whole_s
        self.short: tuple[float, float] | None = None
        """The seconds that the next probe needed and the seconds that were left, where these ended the budget."""

    def over(self) -> bool:
        """Return whether the time is over, or the rest is too short for a probe."""
        return self.short is not None or self._clock.now() >= self._end_s

    def allows(self, probe_s: float | None) -> bool:
        """Return whether the rest is enough for a probe of so many seconds; if it is not, the budget is over."""
        left_s = self._end_s - self._clock.now()
        if probe_s is not None and probe_s > left_s:
            self.short = probe_s, left_s
        return self.short is None


def within(job: Job, budget: Budget, *, foresee: bool = True) -> Job:
    """Return the job that ends when its budget is over, and that begins no probe that the budget is too short for.

    With `foresee` False, the lengths of probes are ignored, because a replayed probe takes no time.
    """
    limited = replace(job, interrupted=lambda: job.interrupted() or budget.over())
    return replace(limited, has_time=budget.allows) if foresee else limited
