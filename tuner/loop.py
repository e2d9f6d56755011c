"""Optimises a study: works on one case after another, each with the rungs of its ladder."""

from collections.abc import Sequence
from dataclasses import replace

from tuner.case_work import CaseWork
from tuner.job import Job, check
from tuner.outcome import CaseOutcome, Ending
from tuner.probe.kinds import FailureKind
from tuner.probe.result import Failure
from tuner.purpose import CALIBRATE, fit_batch
from tuner.running.events import BatchFitStarted, BatchFitted, CalibrationStarted, LadderFixed
from tuner.search.calibration import BatchToFit, calibrated_at
from tuner.study.cases import Case


def optimise(job: Job, cases: Sequence[Case]) -> list[CaseOutcome]:
    """Work on each case until its target number of finished trials is reached; resume the trials in the database.

    A case whose set-up is at fault ends early, and the next case begins. If other workers run the last trials of a
    case, a job that waits for them returns to the case later: such a trial may fail, or another may be needed.
    Raises StudyError, before any probe, where a case has nothing to search or more than its sampler can search.
    Raises StoreError, before any probe, where the case's study in the database differs from this study.
    Later errors are StoreError, OutputError or DeviceError: every finished trial is stored and no process is left.
    """
    for case in cases:
        check(job, case)
    outcomes: list[CaseOutcome] = []
    for case in cases:
        if job.interrupted():
            break
        outcomes.append(_optimised(replace(job, wait=None), case))
        job.watcher(outcomes[-1].event)
    if job.wait is None:
        return outcomes
    return [_waited_for(job, outcome) for outcome in outcomes]


def _waited_for(job: Job, outcome: CaseOutcome) -> CaseOutcome:
    """Return how a case ended, after the probes of other workers if its rest ran there."""
    if outcome.ending is not Ending.ELSEWHERE or job.interrupted():
        return outcome
    later = _optimised(job, outcome.case)
    job.watcher(later.event)
    return replace(later, probed=outcome.probed + later.probed)


def _optimised(job: Job, case: Case) -> CaseOutcome:
    job, calibration = prepared(job, case)
    if calibration is None:
        return CaseWork(job, case).run()
    return calibration if calibration.stopped else CaseWork(job, case).run(calibration.probed)


def prepared(job: Job, case: Case) -> tuple[Job, CaseOutcome | None]:
    """Return the job with all values of the case that are `auto`, and the outcome of a calibration if one ran."""
    if (batch := job.bench.batch_to_fit(case)) is not None:
        return _batch_fitted(job, case, batch)
    return calibrated(job, case)


def _batch_fitted(job: Job, case: Case, batch: BatchToFit) -> tuple[Job, CaseOutcome | None]:
    """Return the job with the case's batch size. The study keeps the size for good, as it keeps rungs."""
    work, outcome = CaseWork(replace(job, purpose=fit_batch(batch)), case), None
    if work.batch is None:
        job.watcher(BatchFitStarted(case=case.name, parameter=batch.parameter))
        outcome = work.run()
        if outcome.stopped:
            return job, outcome
    fitted = work.fix_batch(batch)
    if fitted is None:
        why = f"{batch.parameter} is auto, and fewer than two batch sizes ran; write `choices` of sizes that run"
        failure = Failure(kind=FailureKind.INVALID_CONFIG, rule="batch", detail=why)
        probed = outcome.probed if outcome else 0
        return job, CaseOutcome(case=case, ending=Ending.SETUP, probed=probed, failure=failure)
    job.watcher(BatchFitted(case=case.name, parameter=batch.parameter, size=fitted.size, why=str(fitted)))
    return replace(job, bench=job.bench.with_batch(case, fitted)), outcome


def calibrated(job: Job, case: Case) -> tuple[Job, CaseOutcome | None]:
    """Return the job with the rungs of a case's `auto` ladder, and the outcome of a calibration if one ran.

    The rungs come from the case's study. Where the study has none, a calibration runs now and the study keeps its
    rungs for good.
    """
    if not job.bench.calibrates(case):
        return job, None
    work, outcome = CaseWork(replace(job, purpose=CALIBRATE), case), None
    if work.rungs is None:
        job.watcher(CalibrationStarted(case=case.name, rungs=calibrated_at(job.bench.space_for(case))))
        outcome = work.run()
        if outcome.stopped:
            return job, outcome
    rungs = work.fix_rungs()
    job.watcher(LadderFixed(case=case.name, rungs=rungs))
    return replace(job, bench=job.bench.with_rungs(case, rungs)), outcome
