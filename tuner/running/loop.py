"""Optimizes a study: works on one case after another, and probes its configs until it is over."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from tuner.errors import StudyError
from tuner.probe import Failure, FailureKind
from tuner.records.case_record import FOLDER, CaseRecord, changes, is_of_another
from tuner.running import events
from tuner.running.job import CALIBRATE, Job, check, fit_batch
from tuner.running.probing import Probing
from tuner.search.calibration import BatchToFit, calibrated_at, rungs_after
from tuner.search.choosing import Strategy
from tuner.search.strategies import build_pruner, defaults_first
from tuner.store.case_study import Asked, CaseStudy
from tuner.store.opening import siblings
from tuner.study import Case, compare_with_default


class CaseWork:
    """The work on one case."""

    def __init__(self, job: Job, case: Case) -> None:
        bench = job.bench
        self._job = job
        self._case = case
        self._spec = bench.spec_for(case)
        self._space = space = bench.space_for(case)
        identity = bench.identity_for(case)
        self._siblings = partial(siblings, job.database, bench.spec.name, case, identity, bench.script)
        self.study = CaseStudy(
            job.database,
            bench.study_name(case),
            space=space,
            strategy=self._strategy,
            pruner=build_pruner(self._spec.pruner, self._spec.probe.iterations),
            objectives=self._spec.objectives,
            identity=identity,
            case=CaseRecord(
                case=case.name,
                method=case.method,
                robot=case.robot,
                mode=case.mode,
                files={name: case.options.get(name, "") for name in case.files},
                trainer=identity["trainer"],
                source=bench.source.label,
                devices=bench.device_names,
                objective=self._spec.objective,
                ladder=space.ladder,
                defaults=tuple(space.defaults()),
                learning=tuple(sorted(bench.trainer.learning)),
                recording=job.recording,
            ),
            confirm=job.purpose.competing,
        )
        self._confirmed = 0
        self._probing = Probing(job, case, self.study, spec=self._spec, space=space)

    def _strategy(self, count: int) -> Strategy:
        strategy = self._job.purpose.strategy(self._space, self._spec, count, self._siblings)
        compares = compare_with_default(self._spec.build_constraints())
        return defaults_first(strategy, self._space) if compares else strategy

    def announced(self, event: events.Event) -> events.CaseOutcome:
        """Return how the work on the case ended, which an event announces."""
        self._job.watcher(event)
        return self.run()

    def run(self, probed: int = 0) -> events.CaseOutcome:
        """Return how the work on the case ended; `probed` counts the trials that this command has made before."""
        target, known = self._job.target(self._spec), self.study.history().facts
        if is_of_another(known, self._job.bench.facts):
            raise StudyError(
                f"the study {self._spec.name} was measured with another {known['script'].split()[0]} in "
                f"{known[FOLDER]}; give this one another name: --name for a command, `name` in a study file"
            )
        taken_back = self.study.take_back(self._probing.folder)
        history = self.study.history()
        self._job.watcher(
            events.CaseStarted(
                case=self._case.name,
                finished=history.finished,
                target=target,
                best=events.BestSoFar.of(self.study.case, history.records),
                saved=taken_back.stored,
                to_repeat=taken_back.to_repeat,
                changed=changes(history.facts, self._job.bench.facts) if history.facts else (),
            )
        )
        while asked := self._ask(target):
            result = self._probing.measure(asked)
            probed += 1
            self._confirmed += asked.confirms
            history = self.study.history()
            if ending := events.given_up(result, history.failing_streak, has_run=bool(history.complete)):
                return self._outcome(ending, probed, result.failure)
        if self._job.interrupted():
            return self._outcome(events.Ending.INTERRUPTED, probed)
        is_reached = target is not None and self.study.history().finished >= target
        if self.study.awaited:
            ending = events.Ending.ELSEWHERE
        elif not probed:
            ending = events.Ending.ALREADY
        else:
            ending = events.Ending.TARGET if is_reached else events.Ending.EXHAUSTED
        outcome = self._outcome(ending, probed)
        return outcome if is_reached else replace(outcome, why=self.study.end(keep=self._job.purpose.keeps_end))

    def _ask(self, target: int | None) -> Asked | None:
        """Return the next trial; None when the case is over, the user interrupts, or the rest runs in other workers."""
        while not self._job.interrupted():
            before = self.study.awaited
            if asked := self.study.ask(target, self._probing.price, self._may_begin, self._job.left_s):
                return asked
            awaited = self.study.awaited
            if awaited != before:  # another worker has begun or ended a probe since: the answer may be another now
                continue
            if not (awaited and self._job.wait):
                return None
            while self.study.awaited == awaited and not self._job.interrupted():
                self._job.wait()
            self.study.take_back(self._probing.folder)
        return None

    def _may_begin(self, probe_s: float | None) -> bool:
        """Return whether a probe of so many seconds may begin; the user may have interrupted the wait for the lock."""
        return not self._job.interrupted() and self._job.has_time(probe_s)

    def _outcome(self, ending: events.Ending, probed: int, failure: Failure | None = None) -> events.CaseOutcome:
        unread = ending is events.Ending.UNREAD and failure is None
        why = f"this trainer on these devices reports no {self._spec.objective}" if unread else None
        return events.CaseOutcome(
            case=self._case, ending=ending, probed=probed, confirmed=self._confirmed, failure=failure, why=why
        )


def optimize(job: Job, cases: Sequence[Case]) -> list[events.CaseOutcome]:
    """Return how the work on each case ended: at its target number of finished trials, those in the database included.

    A case whose set-up is at fault ends early, and the next case begins, unless the first lacks a dependency.
    If other workers run the last trials of a case, a job that waits for them returns to the case later: such a trial
    may fail, or another may be needed.
    Raises StudyError, before any probe, where a case has nothing to search or more than its sampler can search.
    Raises StoreError, before any probe, where the case's study in the database differs from this study.
    Later errors are StoreError, OutputError or DeviceError: every finished trial is stored and no process is left.
    """
    for case in cases:
        check(job, case)
    outcomes: list[events.CaseOutcome] = []
    for case in cases:
        if job.interrupted():
            break
        outcomes.append(_optimized(replace(job, wait=None), case))
        job.watcher(outcomes[-1].event)
        if len(outcomes) == 1 and (failure := outcomes[0].failure) and failure.kind is FailureKind.MISSING_DEPENDENCY:
            break  # the other cases have the same trainer
    if job.wait is None:
        return outcomes
    return [_waited_for(job, outcome) for outcome in outcomes]


def _waited_for(job: Job, outcome: events.CaseOutcome) -> events.CaseOutcome:
    """Return how a case ended, after the probes of other workers if its rest ran there."""
    if outcome.ending is not events.Ending.ELSEWHERE or job.interrupted():
        return outcome
    later = _optimized(job, outcome.case)
    job.watcher(later.event)
    confirmed = outcome.confirmed + later.confirmed
    return replace(later, probed=outcome.probed + later.probed, confirmed=confirmed)


def _optimized(job: Job, case: Case) -> events.CaseOutcome:
    """Return how the work on a case ended, its small probes included."""
    job, calibration = prepared(job, case)
    if calibration is None:
        return CaseWork(job, case).run()
    return calibration if calibration.stopped else CaseWork(job, case).run(calibration.probed)


class Prepared(NamedTuple):
    """A job with the values of a case that are `auto`, and how the small probes ended if any ran."""

    job: Job
    outcome: events.CaseOutcome | None = None


def prepared(job: Job, case: Case) -> Prepared:
    """Return the job with all values of the case that are `auto`.

    The values come from the case's study. Where the study has none, they follow from small probes that run now, and the
    study keeps them for good.
    """
    if (batch := job.bench.batch_to_fit(case)) is not None:
        return _batch_fitted(job, case, batch)
    return _calibrated(job, case) if job.bench.calibrates(case) else Prepared(job)


def _batch_fitted(job: Job, case: Case, batch: BatchToFit) -> Prepared:
    """Return the job with the case's batch size."""
    started = events.BatchFitStarted(case=case.name, parameter=batch.parameter)
    work = CaseWork(replace(job, purpose=fit_batch(batch)), case)
    outcome = work.announced(started) if work.study.kept.batch is None else None
    if outcome and outcome.stopped:
        return Prepared(job, outcome)
    fitted = work.study.fix_batch(batch.fit)
    if fitted is None:
        why = f"{batch.parameter} is auto, and fewer than two batch sizes ran; write `choices` of sizes that run"
        failure = Failure(kind=FailureKind.INVALID_CONFIG, rule="batch", detail=why)
        probed = outcome.probed if outcome else 0
        return Prepared(job, events.CaseOutcome(case=case, ending=events.Ending.SETUP, probed=probed, failure=failure))
    job.watcher(events.BatchFitted(case=case.name, parameter=batch.parameter, size=fitted.size, why=str(fitted)))
    return Prepared(replace(job, bench=job.bench.with_batch(case, fitted)), outcome)


def _calibrated(job: Job, case: Case) -> Prepared:
    """Return the job with the rungs of a case's `auto` ladder."""
    space, limits = job.bench.space_for(case), job.bench.spec_for(case).probe
    started = events.CalibrationStarted(case=case.name, rungs=calibrated_at(space))
    work = CaseWork(replace(job, purpose=CALIBRATE), case)
    outcome = work.announced(started) if work.study.kept.rungs is None else None
    if outcome and outcome.stopped:
        return Prepared(job, outcome)
    rungs = work.study.fix_rungs(lambda trials: rungs_after(trials, space, limits))
    job.watcher(events.LadderFixed(case=case.name, rungs=rungs))
    return Prepared(replace(job, bench=job.bench.with_rungs(case, rungs)), outcome)
