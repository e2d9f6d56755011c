"""Decides which probes of a case run in a session, and which configs need a new start."""

from tuner.job import Job
from tuner.probe.kinds import Blame
from tuner.probe.plan import ProbePlan, Slot
from tuner.probe.result import ProbeResult
from tuner.study.cases import Case
from tuner.study.space import Config

MOST_FAILURES = 2
"""After this many failed sessions in a row, none of them a config's fault, a case is measured without sessions."""

_NOT_THE_CONFIG = {Blame.HOST, Blame.SETUP, Blame.UNKNOWN}


class SessionPolicy:
    """Chooses between a session and the trainer's plain command for each probe of one case."""

    def __init__(self, job: Job, case: Case, *, allowed: bool) -> None:
        """`allowed` says whether the study file lets probes run in sessions."""
        self._job = job
        self._case = case
        self._allowed = allowed
        self._failures = 0

    def plan(self, config: Config, slot: Slot, *, cold: bool) -> ProbePlan:
        """Return a plan for a run in a session where the case has sessions, else for the trainer's plain command.

        `cold` asks for the plain command.
        """
        trainer = self._job.bench.trainer
        warm = self._allowed and not cold and self._failures < MOST_FAILURES
        plan = trainer.warm_plan(self._case, config, slot) if warm else None
        return plan or trainer.plan(self._case, config, slot)

    def price(self, config: Config) -> float:
        """Return 0 for a config that the open session can serve, 1 for a config that needs a new start."""
        key = self._job.bench.trainer.session_key(self._case, config) if self._allowed else None
        return 0.0 if key is not None and key == self._job.open_session() else 1.0

    def note(self, result: ProbeResult) -> None:
        """Count the failures in a row that decide whether later probes run in sessions."""
        failed = result.failure is not None and result.failure.kind.blame in _NOT_THE_CONFIG
        if result.warm:
            self._failures = self._failures + 1 if failed else 0
        elif failed:
            self._failures = 0  # the plain command fails as well: the session is not the cause
