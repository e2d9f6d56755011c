"""The work on one case: asks its study for configs and probes them until the case is over."""

from dataclasses import replace
from functools import partial

from tuner.job import Job
from tuner.kept.case import kept_case
from tuner.outcome import CaseOutcome, Ending, given_up
from tuner.probe.result import Failure
from tuner.probing import Probing
from tuner.running.events import CaseStarted, Leader
from tuner.search.calibration import BatchToFit, rungs_after
from tuner.search.choosing import Strategy
from tuner.search.pruner import build_pruner
from tuner.search.searching import defaults_first
from tuner.store.asked import Asked
from tuner.store.siblings import siblings
from tuner.store.study import CaseStudy
from tuner.study.batch import BatchFit
from tuner.study.cases import Case
from tuner.study.constraints import compare_with_default


class CaseWork:
    """The work on one case."""

    def __init__(self, job: Job, case: Case) -> None:
        bench = job.bench
        self._job = job
        self._case = case
        self._spec = bench.spec_for(case)
        self._space = space = bench.space_for(case)
        identity = bench.identity_for(case)
        self._siblings = partial(siblings, job.database, bench.spec.name, case, identity)
        self._study = CaseStudy(
            job.database,
            bench.study_name(case),
            space=space,
            strategy=self._strategy,
            pruner=build_pruner(self._spec.pruner, self._spec.probe.iterations),
            objectives=self._spec.objectives,
            identity=identity,
            case=kept_case(
                case,
                identity,
                ladder=space.ladder,
                defaults=space.defaults(),
                learning=bench.trainer.learning,
                recording=job.recording,
            ),
            confirm=job.purpose.competing,
        )
        self._probing = Probing(job, case, self._study, spec=self._spec, space=space)

    def _strategy(self, count: int) -> Strategy:
        strategy = self._job.purpose.strategy(self._space, self._spec, count, self._siblings)
        compares = compare_with_default(self._spec.build_constraints())
        return defaults_first(strategy, self._space) if compares else strategy

    @property
    def rungs(self) -> tuple[int, ...] | None:
        """The rungs of an `auto` ladder; None until they are fixed."""
        return self._study.kept.rungs

    def fix_rungs(self) -> tuple[int, ...]:
        """Return the rungs of an `auto` ladder; compute them from the trials so far where the study has none."""
        return self._study.fix_rungs(lambda trials: rungs_after(trials, self._space, self._spec.probe))

    @property
    def batch(self) -> BatchFit | None:
        """The batch size that is `auto`; None until it has been worked out."""
        return self._study.kept.batch

    def fix_batch(self, batch: BatchToFit) -> BatchFit | None:
        """Return the batch size that is `auto`; work it out from the trials so far where the study has none."""
        return self._study.fix_batch(batch.fit)

    def run(self, probed: int = 0) -> CaseOutcome:
        """Work until the target is reached; `probed` counts the trials that this command has made before."""
        target = self._job.target(self._spec)
        taken_back = self._study.take_back(self._probing.folder)
        with self._study.read_once():
            finished, best = self._study.finished, self._study.best
        self._job.watcher(
            CaseStarted(
                case=self._case.name,
                finished=finished,
                target=target,
                best=Leader.of(best),
                saved=taken_back.stored,
                to_repeat=taken_back.to_repeat,
            )
        )
        while asked := self._ask(target):
            result = self._probing.probe(asked)
            probed += 1
            has_run = result.failure is None or self._study.has_run
            if ending := given_up(result, self._study.failing_streak, has_run=has_run):
                return self._outcome(ending, probed, result.failure)
        if self._job.interrupted():
            return self._outcome(Ending.INTERRUPTED, probed)
        is_reached = target is not None and self._study.finished >= target
        rest = (Ending.TARGET if is_reached else Ending.EXHAUSTED) if probed else Ending.ALREADY
        outcome = self._outcome(Ending.ELSEWHERE if self._study.awaited else rest, probed)
        return outcome if is_reached else replace(outcome, why=self._study.end(keep=self._job.purpose.keeps_end))

    def _ask(self, target: int | None) -> Asked | None:
        """Return the next trial; None when the case is over, the user interrupts, or the rest runs in other workers."""
        while not self._job.interrupted():
            before = self._study.awaited
            if asked := self._study.ask(target, self._probing.price, self._may_begin):
                return asked
            awaited = self._study.awaited
            if awaited != before:  # another worker has begun or ended a probe since: the answer may be another now
                continue
            if not (awaited and self._job.wait):
                return None
            while self._study.awaited == awaited and not self._job.interrupted():
                self._job.wait()
            self._study.take_back(self._probing.folder)
        return None

    def _may_begin(self, probe_s: float | None) -> bool:
        """Return whether a probe of so many seconds may begin; the user may have interrupted the wait for the lock."""
        return not self._job.interrupted() and self._job.has_time(probe_s)

    def _outcome(self, ending: Ending, probed: int, failure: Failure | None = None) -> CaseOutcome:
        why = f"this trainer on these devices reports no {self._spec.objective}" if ending is Ending.UNREAD else None
        return CaseOutcome(case=self._case, ending=ending, probed=probed, failure=failure, why=why)
