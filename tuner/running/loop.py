"""Optimizes a study: works on one case after another, and probes its configs until the case is over.

- A ladder is the parameter that decides memory, such as the number of environments; its values are its rungs. Where a
  ladder or a batch size is `auto`, small probes come first, from which its values are worked out.
- Each case has a study of its own in the database, whose trials are its probes. Siblings are other cases with a best
  config, from which this case learns. Other workers may probe configs of the same case at the same time.
- If a session measured the best config, the trainer's plain command measures it again, which confirms it.
- A recording measures a list of configs, each fully, in a study and a database of its own. Its results become a table,
  which a later search can replay.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import NamedTuple

from tuner.devices.found import describe_machine
from tuner.errors import StudyError
from tuner.export.recorded_table import Circumstances, columns
from tuner.probe import Failure, FailureKind, number_of
from tuner.records.case_record import FOLDER, CaseRecord, changed_facts, is_of_other_script
from tuner.running import events
from tuner.running.events import CaseOutcome
from tuner.running.job import CALIBRATE, Job, Workbench, check_case, purpose_of_recording
from tuner.running.probing import Probing
from tuner.search.choosing import Strategy
from tuner.search.samplers import ordered_by_session, space_filling
from tuner.search.strategies import build_pruner, defaults_first, rungs_after
from tuner.store.case_study import CaseStudy, OwnTrial
from tuner.store.opening import check_study, siblings
from tuner.study import Case, Config, PrunerSpec, Space, compare_with_default


class CaseWork:
    """The work on one case. The case's identity is its settings that must not change while its study goes on."""

    def __init__(self, job: Job, case: Case, probed: int = 0) -> None:
        """Open the study of a case for a job. Raises StoreError if it was begun with another identity.

        `probed`: the number of probes that this command has already made for the case, such as small ones.
        """
        bench = job.bench
        self._job = job
        self._case = case
        self._spec = bench.spec_for(case)
        self._space = space = bench.space_for(case)
        identity = bench.identity_for(case)
        self._find_siblings = partial(siblings, job.database, bench.stored_name, case, identity, bench.script_digest)
        self.study = CaseStudy(
            job.database,
            bench.study_name(case),
            space=space,
            strategy=self._strategy,
            pruner=build_pruner(self._spec.pruner, self._spec.probe.iterations),
            objectives=self._spec.objectives,
            identity=identity,
            case=_case_record(job, case, self._spec.objective, space),
            confirm=job.purpose.configs_compete,  # only then there is a best to confirm
        )
        self._target = job.target(self._spec)
        """The number of finished trials that ends the work; None where no number does."""
        self._probed, self._confirmed = probed, 0
        """The trials that this command has made, and how many of them only confirmed a config."""
        self._probing = Probing(job, case, self.study, spec=self._spec, space=space)

    def _strategy(self, count: int) -> Strategy:
        """Return the strategy of the job's purpose, for a study that has `count` trials.

        A search may begin with the best configs of siblings, which `_find_siblings` reads when it is called. Where
        constraints compare configs with the defaults of their rungs, the defaults are chosen first.
        """
        strategy = self._job.purpose.strategy(self._space, self._spec, count, self._find_siblings)
        compares = compare_with_default(self._spec.build_constraints())
        return defaults_first(strategy, self._space) if compares else strategy

    def run(self) -> events.CaseOutcome:
        """Probe one config after another until the case is over, and return how that ended.

        Raises StudyError if the study was measured with another script of the same name.
        """
        self._resume()
        while trial := self._next_trial():
            result, history = self._probing.measure(trial)
            self._probed += 1
            self._confirmed += trial.confirms
            if ending := events.early_ending(result, history.failing_streak, has_run=bool(history.complete)):
                self._store_ending(f"the search {ending}; rerun to resume")
                return self._outcome(ending, result.failure)
        return self._outcome_at_end()

    def _resume(self) -> None:
        """End the trials that earlier runs have left running, and tell the listener how many trials the case has.

        Raises StudyError if the study was measured with another script of the same name.
        """
        history = self.study.history()
        facts_before = history.newest_facts
        if is_of_other_script(facts_before, self._job.bench.facts):
            raise StudyError(
                f"the study {self._spec.name} was measured with another {facts_before['script'].split()[0]} in "
                f"{facts_before[FOLDER]}; give this one another `name`"
            )
        abandoned = self.study.end_abandoned_trials(self._probing.folder)
        if any(abandoned):
            history = self.study.history()
        self._job.listener(
            events.CaseStarted(
                case=self._case.name,
                finished=history.finished,
                target=self._target,
                best=events.BestSoFar.of(self.study.case, history.records),
                saved=abandoned.stored,
                to_repeat=abandoned.to_repeat,
                changed=changed_facts(history.newest_facts, self._job.bench.facts) if history.newest_facts else (),
                fixed=tuple(parameter.name for parameter in self._space.parameters if len(parameter.values) == 1),
            )
        )

    def _store_ending(self, why: str) -> None:
        """Store in the database why the work on the case ended, unless other work on the case follows this."""
        if self._job.purpose.stores_ending:
            self.study.stop(why)

    def _outcome_at_end(self) -> events.CaseOutcome:
        """Return how the work on the case ended, once no next trial may begin, and store the reason."""
        if self._job.interrupted():
            self._store_ending(self._job.early_end)
            return self._outcome(events.Ending.INTERRUPTED)
        is_reached = self._target is not None and self.study.history().finished >= self._target
        if self._target is not None and is_reached:
            budget = number_of(self._target, "trial")
            self._store_ending(f"the search stopped at its budget of {budget}; a larger number of trials resumes it")
        if self.study.awaited_at_ask:  # other workers still run probes
            ending = events.Ending.ELSEWHERE
        elif not self._probed:
            ending = events.Ending.ALREADY
        else:
            ending = events.Ending.TARGET if is_reached else events.Ending.EXHAUSTED
        outcome = self._outcome(ending)
        if is_reached:
            return outcome
        # the strategy has nothing left, and says why
        return replace(outcome, why=self.study.why_done(keep=self._job.purpose.stores_ending))

    def _next_trial(self) -> OwnTrial | None:
        """Begin the next trial and return it; None when none may begin.

        None may begin once the case is over, at its target or because the strategy has nothing left, and after the user
        has interrupted. While other workers run the last probes of the case, another probe may still be needed. A job
        with `wait` waits for their ends, and ends the trials of workers that are gone, to probe their configs again.
        """
        while not self._job.interrupted():
            if trial := self.study.ask(self._target, self._probing.starts_for, self._may_begin, self._job.left_s):
                return trial
            awaited = self.study.awaited_at_ask  # the probes of other workers
            if not awaited or self._job.wait is None:
                return None
            while self.study.awaited_now == awaited and not self._job.interrupted():
                self._job.wait()
            self.study.end_abandoned_trials(self._probing.folder)
        return None

    def _may_begin(self, probe_s: float | None) -> bool:
        """Return whether a probe of so many seconds may begin; None stands for an unknown length.

        The study asks this once it holds its lock, because the user may have interrupted while it waited for that.
        """
        return not self._job.interrupted() and self._job.has_time(probe_s)

    def _outcome(self, ending: events.Ending, failure: Failure | None = None) -> events.CaseOutcome:
        """Return the outcome of the case with an ending."""
        is_unread = ending is events.Ending.UNREAD and failure is None
        why = f"this trainer on these devices reports no {self._spec.objective}" if is_unread else None
        return events.CaseOutcome(
            case=self._case, ending=ending, probed=self._probed, confirmed=self._confirmed, failure=failure, why=why
        )


def _case_record(job: Job, case: Case, objective: str, space: Space) -> CaseRecord:
    """Return what the database keeps of a case beside its trials, for tables, reports and similar cases."""
    bench = job.bench
    limits = bench.spec_for(case).probe
    return CaseRecord(
        case=case.name,
        method=case.method,
        robot=case.robot,
        mode=case.mode,
        files={name: case.options.get(name, "") for name in case.files},
        trainer=bench.trainer.fingerprint(),
        source=bench.source.label,
        devices=bench.device_names,
        objective=objective,
        ladder=space.ladder,
        defaults=tuple(space.defaults()),
        learning=tuple(sorted(bench.trainer.learning)),
        max_start_seconds=limits.max_start_seconds,
        max_seconds=limits.max_seconds,
        recording=job.recording,
    )


def optimize(job: Job, cases: Sequence[Case]) -> list[events.CaseOutcome]:
    """Work on one case after another, and return how each ended.

    A case ends at its target number of finished trials; trials that were in the database before count. A case whose
    set-up is at fault ends early, and the next case begins, unless the first case lacks a dependency.
    If other workers run the last trials of a case, a job with `wait` returns to the case later: such a trial may fail,
    or another may be needed.
    Raises StudyError, before any probe, if a case has nothing to search or more than its sampler can search.
    Raises StoreError, before any probe, if the case's study in the database differs from this study.
    Later errors are StoreError, OutputError or DeviceError: every finished trial is stored and no process is left.
    """
    for case in cases:
        check_case(job, case)
    outcomes: list[events.CaseOutcome] = []
    for case in cases:
        if job.interrupted():
            break
        outcomes.append(_optimize_case(replace(job, wait=None), case))
        job.listener(outcomes[-1].event)
        if len(outcomes) == 1 and (failure := outcomes[0].failure) and failure.kind is FailureKind.MISSING_DEPENDENCY:
            break  # the other cases have the same trainer
    if job.wait is None:
        return outcomes

    # Return to the cases whose last trials other workers ran: wait for these, and probe what is then still needed.
    for place, outcome in enumerate(outcomes):
        if outcome.ending is events.Ending.ELSEWHERE and not job.interrupted():
            later = _optimize_case(job, outcome.case)
            job.listener(later.event)
            confirmed = outcome.confirmed + later.confirmed
            outcomes[place] = replace(later, probed=outcome.probed + later.probed, confirmed=confirmed)
    return outcomes


def _optimize_case(job: Job, case: Case) -> events.CaseOutcome:
    """Work on a case, after the small probes that its `auto` ladder needs, and return how that ended."""
    job, small_probes = prepare(job, case)
    if small_probes is not None and small_probes.stopped:
        return small_probes
    return CaseWork(job, case, small_probes.probed if small_probes else 0).run()


class Prepared(NamedTuple):
    """A job with the rungs of a case's `auto` ladder, and how the small probes ended if any ran."""

    job: Job
    outcome: events.CaseOutcome | None = None


def prepare(job: Job, case: Case) -> Prepared:
    """Return the job with the rungs of the case's `auto` ladder, and how the small probes ended if any ran.

    The rungs come from the case's study. If the study has none, they follow from small probes that run now, and the
    study keeps them for good.
    """
    if not job.bench.needs_calibration(case):
        return Prepared(job)
    space, limits = job.bench.space_for(case), job.bench.spec_for(case).probe
    work, ladder = CaseWork(replace(job, purpose=CALIBRATE), case), str(space.ladder)
    outcome = None if work.study.attributes.rungs else _run_small_probes(work, job, ladder)
    if outcome and outcome.stopped:
        return Prepared(job, outcome)
    rungs = work.study.fixed_rungs(lambda trials: rungs_after(trials, space, limits))
    job.listener(events.AutoFixed(case=case.name, parameter=ladder, values=rungs))
    return Prepared(replace(job, bench=job.bench.with_rungs(case, rungs)), outcome)


def _run_small_probes(work: CaseWork, job: Job, ladder: str) -> events.CaseOutcome:
    """Run the small probes that decide the rungs of an `auto` ladder, and return how that ended."""
    job.listener(events.AutoStarted(case=work.study.case.case, parameter=ladder))
    outcome = work.run()
    if outcome.ending is events.Ending.INTERRUPTED:
        work.study.stop(job.early_end)  # a rerun goes on with the probes that are left
    return outcome


MOST_CONFIGS = 100_000
"""The most configs of a space to record.

The choice of a sample looks at every config, and the recording of a larger grid would hardly end.
"""


class PlannedRecording(NamedTuple):
    """What a recording of one case measures."""

    case: Case
    sample_size: int | None
    """The number of configs in a sample that fills the space; None for the whole space."""
    configs: Sequence[Config]
    """The configs, in the order in which they are measured."""
    circumstances: Circumstances


def recording_bench(bench: Workbench, *, shares_database: bool = False) -> Workbench:
    """Return the bench for recording: without a pruner and constraints, so that every config is measured fully.

    The probes have a folder of their own, and in a database that others share another study. A table holds every
    metric, and the series of one objective: the first objective of the study.
    """
    spec = bench.spec.model_copy(
        update={"pruner": PrunerSpec(name="none"), "constraints": {}, "objective": bench.spec.objectives[0]}
    )
    return replace(bench, spec=spec, folder=bench.folder / "record", stored_as="-record" if shares_database else "")


def plan_recording(bench: Workbench, case: Case, count: int | None) -> PlannedRecording:
    """Return what to record of a case: its whole space or, if `count` is given, so many configs that fill the space.

    Raises StudyError if a parameter cannot be a column of a table, or the space has too many configs.
    """
    spec, space = bench.spec_for(case), bench.space_for(case)
    if any(islice(space.configs(), MOST_CONFIGS, None)):
        raise StudyError(
            f"the space of {case.name} holds more than {MOST_CONFIGS:,} configs, too many to record; leave values out"
        )
    configs = list(space.configs()) if count is None else space_filling(space, count, spec.search.seed)
    parameters = {name: spec.space[name] for name in space.names}
    if space.ladder is not None:
        parameters[space.ladder] = parameters[space.ladder].with_values(space.rungs)
    columns(parameters)  # called for its StudyError alone

    session_key = partial(bench.trainer.session_key, case) if spec.probe.warm else lambda _: None
    return PlannedRecording(
        case=case,
        sample_size=count,
        # configs of one session follow each other, so that few trainers are started
        configs=ordered_by_session(configs, session_key, space.ladder),
        circumstances=Circumstances(
            space=parameters,
            limits=spec.probe,
            machine=describe_machine(bench.source),
            devices=tuple(replace(device, uuid=None) for device in bench.devices),
            commit=bench.commit,
        ),
    )


class CaseRecording(NamedTuple):
    """The recording of a case."""

    planned: PlannedRecording
    """The plan; a new one if small probes gave the rungs of an `auto` ladder."""
    outcome: CaseOutcome | None = None
    """How it ended; None if it never began."""


def record_cases(job: Job, recordings: Sequence[PlannedRecording]) -> list[CaseRecording]:
    """Record one case after another, and return how each recording ended.

    All configs of a plan are measured in their order, except the configs that were recorded before.
    Raises StoreError, before any probe, if a case was recorded with other settings.
    """
    for case in (recording.case for recording in recordings):
        check_study(job.database, job.bench.study_name(case), job.bench.identity_for(case))
    return [CaseRecording(recording) if job.interrupted() else _record(job, recording) for recording in recordings]


def _record(job: Job, recording: PlannedRecording) -> CaseRecording:
    """Record a case, and return how that ended. Small probes come first for an `auto` ladder."""
    case, recording_job = recording.case, _with_circumstances(job, recording)
    prepared_job, small_probes = prepare(recording_job, case)
    if small_probes and small_probes.stopped:
        job.listener(small_probes.event)
        return CaseRecording(recording, small_probes)
    if prepared_job is not recording_job:  # small probes, now or earlier, gave the rungs
        recording = plan_recording(prepared_job.bench, case, recording.sample_size)
    space = prepared_job.bench.space_for(case)
    # A recording ends after as many trials as it has configs. Small probes are trials of the same study and would be
    # counted, so with them it ends when no config is left. That the ladder was `auto` shows in the space even now.
    purpose = purpose_of_recording(recording.configs, has_target=space.auto_bounds is None)
    job = replace(_with_circumstances(prepared_job, recording), purpose=purpose, trials=len(recording.configs))
    return CaseRecording(recording, next(iter(optimize(job, [case])), None))


def _with_circumstances(job: Job, recording: PlannedRecording) -> Job:
    """Return the job with the circumstances of the recording, which the case's study keeps."""
    return replace(job, recording=recording.circumstances.model_dump(mode="json"))
