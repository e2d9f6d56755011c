"""How the work on a case ends: why, and after which failures."""

from dataclasses import dataclass
from enum import StrEnum

from tuner.probe.kinds import Blame
from tuner.probe.result import Failure, ProbeResult
from tuner.running.events import CaseEnded
from tuner.search.standing import BROKEN_AFTER
from tuner.study.cases import Case

CRASHES_AFTER_A_RESULT = 6
"""This many unexplained failures in a row stop a case: three configs, each in a session and by the plain command."""
HOST_FAILURES_IN_A_ROW = 4
"""This many failures in a row with the machine at fault stop a case: two configs tried twice, or a busy card."""


class Ending(StrEnum):
    """Why the work on a case ended."""

    ALREADY = "nothing left to do"
    TARGET = "the trial budget is used"
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

    @property
    def event(self) -> CaseEnded:
        """What is told of it."""
        return CaseEnded(case=self.case.name, ending=self.ending, probed=self.probed, why=self.why)
