"""What optimising a study needs, who watches it, and how the work on a case can end."""

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
"""This many stop it when the machine is at fault: two configs tried twice, or one that waits for a busy card."""

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
    """Say why to stop a case after a probe, None to go on; what failed in a session is left to the plain command.

    `streak` counts the failures in a row that no config is to blame for; `has_run`: some probe has given a number.
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
    """How the work on one case ended; `failure` says what to mend where it stopped early."""

    case: Case
    ending: Ending
    probed: int
    failure: Failure | None = None
    why: str | None = None
    """Why nothing was left that is worth a probe, in the sampler's words, or what was not measured."""

    @property
    def stopped(self) -> bool:
        """Whether the work ended before its time."""
        return self.failure is not None or self.ending in {Ending.UNREAD, Ending.INTERRUPTED}


class Watcher(Protocol):
    """Is told what happens, to show it."""

    def case_started(self, case: Case, *, finished: int, target: int | None, recovered: Recovered) -> None:
        """Work on a case begins; `target` is None where no number of trials ends it."""
        ...

    def calibrating(self, case: Case, rungs: Sequence[int]) -> None:
        """The case has an `auto` ladder without rungs: probes at the first two of these that run are to make them."""
        ...

    def rungs_fixed(self, case: Case, rungs: Sequence[int]) -> None:
        """The case's `auto` ladder has these rungs, made now or long ago."""
        ...

    def probe_started(self, case: Case, asked: Asked) -> None:
        """A config is about to be launched."""
        ...

    def iteration(self, result: ProbeResult, objective: float | None) -> None:
        """The running probe has completed an iteration; `result` is what is known so far."""
        ...

    def told(self, case: Case, asked: Asked, result: ProbeResult, verdict: Verdict, *, incumbent: float | None) -> None:
        """The study has been told about a config."""
        ...

    def case_ended(self, outcome: CaseOutcome) -> None:
        """Work on a case has ended."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What optimising needs: the study, its database, the means to probe, and who is told and asked meanwhile."""

    bench: Workbench
    database: Database
    probe: Probe
    watcher: Watcher
    interrupted: Callable[[], bool]
    """Whether the user wants to stop, or the time is over."""
    has_time: Callable[[float | None], bool] = lambda _: True
    """Whether a probe may begin that takes so many seconds as a rule; None: nothing is known yet."""
    purpose: Purpose = SEARCH
    trials: int | None = None
    """Finished trials per case, where not the study's own number."""
    open_session: Callable[[], str | None] = lambda: None
    """The key of the session that is open now, if one is."""
    recording: Mapping[str, Any] | None = None
    """How the case is recorded, where it is: the JSON of `Circumstances`, which the case's study keeps."""


def check(job: Job, case: Case) -> None:
    """See that a case can be searched, and its study be resumed; nothing is begun.

    Raises StudyError, naming the case, where no sampler can be made, StoreError where its study was begun otherwise.
    The sampler that searches is another one, made when the cases before have shown their best.
    """
    check_study(job.database, job.bench.study_name(case), job.bench.identity_for(case))
    space, spec = job.bench.space_for(case), job.bench.spec_for(case)
    try:
        job.purpose.sampler(space, spec, 0, tuple)
    except StudyError as error:
        raise StudyError(f"case {case.name}: {error}") from error


class Budget:
    """The time that probes may take: so many hours from now on, or without end where `hours` is None."""

    def __init__(self, clock: Clock, hours: float | None) -> None:
        self._clock = clock
        self.whole_s = math.inf if hours is None else hours * HOUR_S
        self._end_s = clock.now() + self.whole_s
        self.short: tuple[float, float] | None = None
        """The seconds that the next probe would have taken, and those that were left, where that ended it."""

    def over(self) -> bool:
        """Tell whether the time is spent, or the rest of it too short for a probe."""
        return self.short is not None or self._clock.now() >= self._end_s

    def allows(self, probe_s: float | None) -> bool:
        """Tell whether a probe of so many seconds can be done in what is left; once it cannot, the budget is over."""
        left_s = self._end_s - self._clock.now()
        if probe_s is not None and probe_s > left_s:
            self.short = probe_s, left_s
        return self.short is None


def within(job: Job, budget: Budget, *, foresee: bool = True) -> Job:
    """Return the job that ends with a budget, before a probe that cannot be done in it.

    `foresee` False leaves out how long probes take: a replayed probe takes no time.
    """
    limited = replace(job, interrupted=lambda: job.interrupted() or budget.over())
    return replace(limited, has_time=budget.allows) if foresee else limited
