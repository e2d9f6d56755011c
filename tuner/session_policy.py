"""Which probes of a case run in a session, and what a probe costs before it measures anything."""

from tuner.job import Job
from tuner.probe.kinds import Blame
from tuner.probe.plan import ProbePlan, Slot
from tuner.probe.result import ProbeResult
from tuner.study.cases import Case
from tuner.study.space import Config

MOST_FAILURES = 2
"""After this many failed sessions in a row that no config is to blame for, a case is measured without sessions."""

_NOT_THE_CONFIG = {Blame.HOST, Blame.SETUP, Blame.UNKNOWN}


class SessionPolicy:
    """Decides between a session and the trainer's plain command, probe by probe, for one case."""

    def __init__(self, job: Job, case: Case, *, allowed: bool) -> None:
        """`allowed` says whether the study file lets probes run in sessions."""
        self._job = job
        self._case = case
        self._allowed = allowed
        self._failures = 0

    def plan(self, config: Config, slot: Slot, *, cold: bool) -> ProbePlan:
        """Plan a run in a session where there may be one, else the trainer's plain command; `cold` asks for that."""
        trainer = self._job.bench.trainer
        warm = self._allowed and not cold and self._failures < MOST_FAILURES
        plan = trainer.warm_plan(self._case, config, slot) if warm else None
        return plan or trainer.plan(self._case, config, slot)

    def price(self, config: Config) -> float:
        """Return 0 for a config that the open session can serve, 1 for a config that needs a start."""
        key = self._job.bench.trainer.session_key(self._case, config) if self._allowed else None
        return 0.0 if key is not None and key == self._job.open_session() else 1.0

    def note(self, result: ProbeResult) -> None:
        """Take a result into account."""
        failed = result.failure is not None and result.failure.kind.blame in _NOT_THE_CONFIG
        if result.warm:
            self._failures = self._failures + 1 if failed else 0
        elif failed:
            self._failures = 0  # the plain command fails on it, too: the session is not to blame
