"""Optimises a study: for each case, ask for a config, probe it, judge the result, and store it in the study."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from tuner.errors import ConfigRefusedError, StoreError, TrainerError
from tuner.job import Job, check
from tuner.kept.case import kept_case
from tuner.outcome import CaseOutcome, Ending, given_up
from tuner.probe.kinds import FailureKind
from tuner.probe.metrics import measured, value
from tuner.probe.out_dir import reserved_out_dir
from tuner.probe.plan import ProbePlan, Slot
from tuner.probe.port import reserved_port
from tuner.probe.result import Failure, ProbeResult, unlaunched
from tuner.probe.stop import Answer, Go, Interrupted, Pruned, Stop
from tuner.purpose import CALIBRATE
from tuner.search.calibration import calibration_configs, rungs_after
from tuner.search.choosing import Strategy
from tuner.search.pruner import build_pruner
from tuner.search.searching import defaults_first
from tuner.search.trials import same_launch
from tuner.search.verdict import Verdict, foregone, judge, settled
from tuner.session_policy import SessionPolicy
from tuner.store.dropped import set_aside
from tuner.store.records import kept_probe
from tuner.store.siblings import siblings
from tuner.store.study import Asked, CaseStudy
from tuner.study.cases import Case
from tuner.study.space import LADDER, Config


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
        job.watcher.case_ended(outcomes[-1])
    if job.wait is None:
        return outcomes
    return [_waited_for(job, outcome) for outcome in outcomes]


def _waited_for(job: Job, outcome: CaseOutcome) -> CaseOutcome:
    """Return how a case ended, after the probes of other workers if its rest ran there."""
    if outcome.ending is not Ending.ELSEWHERE or job.interrupted():
        return outcome
    later = _optimised(job, outcome.case)
    job.watcher.case_ended(later)
    return replace(later, probed=outcome.probed + later.probed)


def _optimised(job: Job, case: Case) -> CaseOutcome:
    job, calibration = calibrated(job, case)
    if calibration is None:
        return _CaseWork(job, case).run()
    return calibration if calibration.stopped else _CaseWork(job, case).run(calibration.probed)


def calibrated(job: Job, case: Case) -> tuple[Job, CaseOutcome | None]:
    """Return the job with the rungs of a case's `auto` ladder, and the outcome of a calibration if one ran.

    The rungs come from the case's study. Where the study has none, a calibration runs now and the study keeps its
    rungs for good.
    """
    if not job.bench.calibrates(case):
        return job, None
    work, outcome = _CaseWork(replace(job, purpose=CALIBRATE), case), None
    if work.rungs is None:
        job.watcher.calibrating(case, [int(one[LADDER]) for one in calibration_configs(job.bench.space_for(case))])
        outcome = work.run()
        if outcome.stopped:
            return job, outcome
    rungs = work.fix_rungs()
    job.watcher.rungs_fixed(case, rungs)
    return replace(job, bench=job.bench.with_rungs(case, rungs)), outcome


class _CaseWork:
    """The work on one case."""

    def __init__(self, job: Job, case: Case) -> None:
        bench = job.bench
        self._job = job
        self._case = case
        self._probes = bench.folder / "probes" / case.name
        self._spec = bench.spec_for(case)
        self._space = space = bench.space_for(case)
        self._constraints = self._spec.build_constraints()
        self._compares = any(one.of_default for one in self._constraints)
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
                defaults=space.defaults(),
                learning=bench.trainer.learning,
                recording=job.recording,
            ),
            confirm=job.purpose.competing,
        )
        self._sessions = SessionPolicy(job, case, allowed=self._spec.probe.warm)

    def _strategy(self, count: int) -> Strategy:
        strategy = self._job.purpose.strategy(self._space, self._spec, count, self._siblings)
        return defaults_first(strategy, self._space) if self._compares else strategy

    @property
    def rungs(self) -> tuple[int, ...] | None:
        """The rungs of an `auto` ladder; None until they are fixed."""
        return self._study.rungs

    def fix_rungs(self) -> tuple[int, ...]:
        """Return the rungs of an `auto` ladder; compute them from the trials so far where the study has none."""
        return self._study.fix_rungs(lambda trials: rungs_after(trials, self._space, self._spec.probe))

    def run(self, probed: int = 0) -> CaseOutcome:
        """Work until the target is reached; `probed` counts the trials that this command has made before."""
        target = (self._job.trials or self._spec.search.trials) if self._job.purpose.limited else None
        recovered = self._study.recover(self._probes)
        self._job.watcher.case_started(self._case, finished=self._study.finished, target=target, recovered=recovered)
        while asked := self._ask(target):
            result = self._probe_once(asked)
            probed += 1
            has_run = result.failure is None or self._study.has_run
            if ending := given_up(result, self._study.failing_streak, has_run=has_run):
                return self._outcome(ending, probed, result.failure)
        if self._job.interrupted():
            return self._outcome(Ending.INTERRUPTED, probed)
        if target is None or self._study.finished < target:
            rest = Ending.EXHAUSTED if probed else Ending.ALREADY
            outcome = self._outcome(Ending.ELSEWHERE if self._study.running else rest, probed)
            return replace(outcome, why=self._study.end(keep=self._job.purpose.keeps_end))
        return self._outcome(Ending.TARGET if probed else Ending.ALREADY, probed)

    def _ask(self, target: int | None) -> Asked | None:
        """Return the next trial; None when the case is over, the user interrupts, or the rest runs in other workers."""
        while not self._job.interrupted():
            if asked := self._study.ask(target, self._sessions.price, self._job.has_time):
                return asked
            busy = self._study.running
            if not (busy and self._job.wait):
                return None
            while self._study.running == busy and not self._job.interrupted():
                self._job.wait()
        return None

    def _outcome(self, ending: Ending, probed: int, failure: Failure | None = None) -> CaseOutcome:
        why = f"this trainer on these devices reports no {self._spec.objective}" if ending is Ending.UNREAD else None
        return CaseOutcome(case=self._case, ending=ending, probed=probed, failure=failure, why=why)

    def _probe_once(self, asked: Asked) -> ProbeResult:
        """Probe one config, or judge it without a probe, and store the result."""
        with reserved_port() as port, reserved_out_dir(self._probes / f"{asked.number:04d}") as out_dir:
            try:
                plan = self._sessions.plan(asked.config, self._slot(out_dir, port), cold=asked.cold)
                known = foregone(asked.config, self._study.frontier())
                if known:
                    failure, verdict = known
                    result = unlaunched(asked.config, failure, plan.digest)
                else:
                    self._job.watcher.probe_started(self._case, asked)
                    result = self._job.probe(plan, self._stop(asked))
                    verdict = self._judge(result, asked)
            except TrainerError as refusal:
                return self._refuse(asked, refusal)
        self._tell(asked, result, verdict, plan, launched=result.launched)
        return result

    def _refuse(self, asked: Asked, refusal: TrainerError) -> ProbeResult:
        """Store that the trainer cannot plan or start this config, or any config where the case's files are bad."""
        one_config = isinstance(refusal, ConfigRefusedError)
        kind = FailureKind.INVALID_CONFIG if one_config else FailureKind.MISSING_ASSET
        failure = Failure(kind=kind, rule="trainer", detail=str(refusal))
        result = unlaunched(asked.config, failure, "")
        verdict = self._judge(result, asked)
        self._tell(asked, result, verdict, None, launched=False)
        return result

    def _judge(self, result: ProbeResult, asked: Asked) -> Verdict:
        self._sessions.note(result)
        return judge(
            result,
            *self._spec.objectives,
            headroom_pct=self._spec.probe.headroom_pct,
            constraints=self._constraints,
            default=self._default_metrics(result) if self._compares else {},
            attempt=asked.attempt,
        )

    def _default_metrics(self, result: ProbeResult) -> Mapping[str, float | None]:
        """Return the metrics of the default config at a result's rung; the result's own where it is the default."""
        if self._is_default(result.config):
            return measured(result)
        return self._study.metrics_of(self._space.default_at(result.config.get(LADDER)))

    def _is_default(self, config: Config) -> bool:
        """Return whether constraints compare other configs with this config."""
        return self._compares and same_launch(config, self._space.default_at(config.get(LADDER)))

    def _tell(
        self, asked: Asked, result: ProbeResult, verdict: Verdict, plan: ProbePlan | None, *, launched: bool
    ) -> None:
        record = kept_probe(result, verdict, plan, launched=launched, folder=self._job.bench.folder)
        try:
            self._study.tell(asked, verdict, record)
        except StoreError as error:
            raise set_aside(error, asked.number, verdict, record, self._job.bench.folder) from error
        self._job.watcher.probe_ended(self._case, asked, result, verdict, incumbent=self._study.incumbent)

    def _stop(self, asked: Asked) -> Stop:
        def stop(so_far: ProbeResult | None) -> Answer:
            if self._job.interrupted():
                return Interrupted()
            self._study.beat(asked)
            return self._after_iteration(asked, so_far) if so_far else Go()

        return stop

    def _after_iteration(self, asked: Asked, so_far: ProbeResult) -> Answer:
        """Show and report the result of a running probe so far; return whether the probe goes on."""
        objectives = self._spec.objectives
        number = value(so_far, objectives[0])
        self._job.watcher.iteration(so_far, number)
        hopeless = number is not None and self._study.report(asked, so_far.iterations, number)
        competing = self._job.purpose.competing and not asked.confirms and not self._is_default(asked.config)
        if hopeless and competing and (so_far.window_s or 0.0) >= self._spec.probe.window_seconds:
            return Pruned(f"{self._spec.pruner.name} after {so_far.iterations} iteration(s)")
        rival = self._study.incumbent if competing else None
        return settled(so_far, objectives, self._spec.probe, rival)

    def _slot(self, out_dir: Path, port: int) -> Slot:
        return Slot(
            devices=self._job.bench.devices,
            out_dir=out_dir,
            port=port,
            limits=self._spec.probe,
            variables=self._job.bench.variables,
        )
