"""The probes of one case: plans each, runs it or knows its result without, judges and stores the result."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tuner.errors import ConfigRefusedError, LaunchError, StoreError, TrainerError
from tuner.job import Job
from tuner.outcome import Pace
from tuner.probe.kinds import FailureKind
from tuner.probe.metrics import error, measured, value, with_sure_speed
from tuner.probe.out_dir import reserved_out_dir
from tuner.probe.plan import ProbePlan, Slot
from tuner.probe.port import reserved_port
from tuner.probe.result import Failure, ProbeResult, unlaunched
from tuner.probe.stop import Answer, Go, Interrupted, Pruned, Stop
from tuner.search.choosing import Price
from tuner.search.verdict import Verdict, foregone, judge, settled
from tuner.session_policy import SessionPolicy
from tuner.store.asked import Asked
from tuner.store.dropped import set_aside
from tuner.store.records import kept_probe
from tuner.store.study import CaseStudy
from tuner.study.cases import Case
from tuner.study.constraints import compare_with_default
from tuner.study.launch import same_launch
from tuner.study.space import LADDER, Config, Space
from tuner.study.spec import StudySpec

_REFUSALS = {ConfigRefusedError: FailureKind.INVALID_CONFIG, LaunchError: FailureKind.INVALID_COMMAND}
"""The kind of failure of a config that the trainer cannot plan or start; for any other error a file is at fault."""


class Probing:
    """Probes the configs of one case."""

    def __init__(self, job: Job, case: Case, study: CaseStudy, *, spec: StudySpec, space: Space) -> None:
        """`spec` and `space` are those of the case."""
        self._job = job
        self._case = case
        self._study = study
        self._spec = spec
        self._space = space
        self._constraints = spec.build_constraints()
        self._compares = compare_with_default(self._constraints)
        self._sessions = SessionPolicy(job, case, allowed=spec.probe.warm)
        self.folder = job.bench.folder / "probes" / case.name
        """The folder of all probes of the case."""

    @property
    def price(self) -> Price:
        """What tells how many trainer starts a probe of a config takes now."""
        return self._sessions.price

    def probe(self, asked: Asked) -> ProbeResult:
        """Probe one config, or judge it without a probe, and store the result."""
        with reserved_port() as port, reserved_out_dir(self.folder / f"{asked.number:04d}") as out_dir:
            try:
                plan = self._sessions.plan(asked.config, self._slot(out_dir, port), cold=asked.cold)
                with self._study.read_once():
                    known, left_s = foregone(asked.config, self._study.frontier()), self._left_s(asked)
                if known:
                    failure, verdict = known
                    result = unlaunched(asked.config, failure, plan.digest)
                else:
                    self._job.watcher.probe_started(self._case, asked, limits=self._spec.probe, left_s=left_s)
                    result = replace(self._job.probe(plan, self._stop(asked)), total_batch=plan.total_batch)
                    result = with_sure_speed(result, (*self._spec.objectives, *self._spec.constraints))
                    verdict = self._judge(result, asked)
            except TrainerError as refusal:
                return self._refuse(asked, refusal)
        self._tell(asked, result, verdict, plan, launched=result.launched)
        return result

    def _refuse(self, asked: Asked, refusal: TrainerError) -> ProbeResult:
        """Store that the trainer cannot plan or start this config, or any config where the case's files are bad."""
        kind = _REFUSALS.get(type(refusal), FailureKind.MISSING_ASSET)
        failure = Failure(kind=kind, rule="trainer", detail=str(refusal))
        result = unlaunched(asked.config, failure, "")
        verdict = self._judge(result, asked)
        self._tell(asked, result, verdict, None, launched=False)
        return result

    def _judge(self, result: ProbeResult, asked: Asked) -> Verdict:
        self._sessions.note(result)
        verdict = judge(
            result,
            *self._spec.objectives,
            headroom_pct=self._spec.probe.headroom_pct,
            constraints=self._constraints,
            default=self._default_metrics(result) if self._compares else {},
            attempt=asked.attempt,
        )
        never = self._job.purpose.ineligible if verdict.value is not None else None
        return replace(verdict, ineligible=verdict.ineligible or never)

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
        except StoreError as lost:
            raise set_aside(lost, asked.number, verdict, record, self._job.bench.folder) from lost
        target = self._job.target(self._spec)
        with self._study.read_once():
            pace = Pace.at(self._study.finished, target, self._usual_s, workers=1 + self._study.running)
            leads, best = self._study.leads(verdict.value), self._study.best
        self._job.watcher.probe_ended(self._case, asked, result, verdict, leads=leads, best=best, pace=pace)

    @property
    def _usual_s(self) -> float | None:
        """The seconds that a probe usually takes; None where none is known, or where probes take no time."""
        return None if self._job.simulated else self._study.usual_s

    def _left_s(self, asked: Asked) -> float | None:
        """Return the seconds until the search probably ends, this probe included."""
        usual_s = self._usual_s
        if asked.left is None or usual_s is None:
            return None
        return asked.left * usual_s / max(self._study.running, 1)

    def _stop(self, asked: Asked) -> Stop:
        def stop(so_far: ProbeResult | None) -> Answer:
            if self._job.interrupted():
                return Interrupted()
            self._study.beat(asked)
            self._job.watcher.still_running()
            return self._after_iteration(asked, so_far) if so_far else Go()

        return stop

    def _after_iteration(self, asked: Asked, so_far: ProbeResult) -> Answer:
        """Show and report the result of a running probe so far; return whether the probe goes on."""
        objectives = self._spec.objectives
        number = value(so_far, objectives[0])
        self._job.watcher.iteration(so_far, number, error(so_far, objectives[0]))
        hopeless = (
            number is not None and not so_far.level_changed and self._study.report(asked, so_far.iterations, number)
        )
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
