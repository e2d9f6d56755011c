"""The probes of one case: each is planned, run unless it is certain to fail, judged and stored.

In a session, one started trainer serves several probes; otherwise the trainer's plain command serves a single one. The
best config of sessions is confirmed at the end: the plain command measures it again. A rung is a value of the ladder,
the parameter that decides memory.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from tuner import probe
from tuner.count import PARTS, TrainingCounts, differences
from tuner.errors import ConfigRefusedError, LaunchError, StoreError, TrainerError
from tuner.running.events import BestSoFar, Phase, ProbeEnded, ProbeRunning, ProbeStarted
from tuner.running.job import Job, Pulse
from tuner.running.prober import run_in
from tuner.search.choosing import History
from tuner.search.verdict import Verdict, judge, judge_unlaunched, next_answer
from tuner.store.case_study import CaseStudy, OwnTrial, probe_record, write_unstored
from tuner.study import Case, Config, Space, StudySpec, compare_with_default, same_launch

_REFUSALS = {ConfigRefusedError: probe.FailureKind.INVALID_CONFIG, LaunchError: probe.FailureKind.INVALID_COMMAND}
"""The kind of failure of a config that the trainer cannot plan or start; for any other error a file is at fault."""


class StoredProbe(NamedTuple):
    """A probe whose result is stored."""

    result: probe.ProbeResult
    history: History
    """What the study has probed now."""


class Probing:
    """Probes the configs of one case, in sessions if the study file and the trainer have them."""

    MOST_FAILED_SESSIONS = 2
    """After this many failed sessions in a row, none of them a config's fault, a case is measured without sessions."""

    def __init__(self, job: Job, case: Case, study: CaseStudy, *, spec: StudySpec, space: Space) -> None:
        """Prepare the probes of a case.

        Args:
            job: The bench, the prober, the listener, and what may stop the work.
            case: The case.
            study: The study that gives the configs and stores the results.
            spec: The study's settings for this case.
            space: The parameters of this case.
        """
        self._job = job
        self._case = case
        self._study = study
        self._spec = spec
        self._space = space
        self._constraints = spec.build_constraints()
        self._needs_default = compare_with_default(self._constraints)
        self._own_training: TrainingCounts | None = None
        """What was counted in a probe of the person's own config; None before it is needed, or known."""
        self._failed_sessions = 0
        """The sessions in a row that failed, none of them by a config's fault."""
        self.folder = job.bench.folder / "probes" / case.name
        """The folder of all probes of the case."""

    def starts_for(self, config: Config) -> float:
        """Return how many starts of a trainer a config costs: 0 if the open session can serve it, else 1."""
        key = self._job.bench.trainer.session_key(self._case, config) if self._spec.probe.warm else None
        return 0.0 if key is not None and key == self._job.open_session() else 1.0

    def measure(self, trial: OwnTrial) -> StoredProbe:
        """Probe the config of a trial in its slot, unless it is certain to fail; store the result, and return it."""
        slot = self._job.bench.slot(self._case, self.folder / f"{trial.number:04d}", trial.config)
        slot = replace(slot, limits=self._job.purpose.limits(slot.limits))
        try:
            stored = run_in(slot, partial(self._plan, trial), partial(self._probe, trial))
        except TrainerError as refusal:
            kind = _REFUSALS.get(type(refusal), probe.FailureKind.MISSING_ASSET)
            result = probe.unlaunched(trial.config, probe.Failure(kind=kind, rule="trainer", detail=str(refusal)), "")
            stored = self._store(trial, result, self._judge(result, trial), None)
        self._count_failed_sessions(stored.result)
        return stored

    def _plan(self, trial: OwnTrial, slot: probe.Slot) -> probe.ProbePlan:
        """Return a plan for a run in a session if the case has sessions, else for the trainer's plain command."""
        trainer = self._job.purpose.trainer or self._job.bench.trainer
        sessions_work = self._failed_sessions < self.MOST_FAILED_SESSIONS
        is_warm = self._spec.probe.warm and not trial.choice.cold and sessions_work
        warm_plan = trainer.warm_plan(self._case, trial.config, slot) if is_warm else None  # None: it has no sessions
        return warm_plan or trainer.plan(self._case, trial.config, slot)

    def _probe(self, trial: OwnTrial, plan: probe.ProbePlan) -> StoredProbe:
        """Run the plan of a trial, store the result and the verdict on it, and return the result as it is stored.

        Nothing runs if the config needs as much memory as one that ran out: it is certain to fail.
        """
        history = trial.history  # as it was when the config was chosen
        # another worker may have run out of memory since then
        newest_history = self._study.history() if history.running else history
        if known := judge_unlaunched(trial.config, newest_history.frontier):
            failure, verdict = known
            return self._store(trial, probe.unlaunched(trial.config, failure, plan.digest), verdict, plan)
        left = None if trial.confirms else self._probes_left(trial.choice.trials_left, history.finished)
        self._job.listener(
            ProbeStarted(
                case=self._case.name,
                trial=trial.number,
                config=dict(trial.config),
                left=left,
                left_s=self._time_left(left, history),
            )
        )
        measured = self._job.probe(plan, self._stop_function(trial))
        result = self._with_comparisons(measured, plan, history.newest_facts)
        return self._store(trial, result, self._judge(result, trial), plan)

    def _with_comparisons(
        self, result: probe.ProbeResult, plan: probe.ProbePlan, facts_before: Mapping[str, str]
    ) -> probe.ProbeResult:
        """Return the result of a probe with its FLOPs, and what has changed since other trials.

        `facts_before`: those of the study's newest measurement, such as its version of torch.
        """
        result = probe.without_rough_speed(result, self._spec.needed)
        mfu_pct = probe.mfu_pct(result.samples_per_s, plan.flops_per_sample, plan.slot.devices)
        result = replace(result, mfu_pct=mfu_pct)
        before, now = facts_before.get("torch"), result.facts.get("torch")
        if before and now and before != now:  # only a probe tells the version
            note = f"torch {before} → {now} since the newest trial, so speeds may differ"
            result = replace(result, notes=(*result.notes, note))
        if result.ok and (change := self._training_change(result)):
            result = replace(result, failure=probe.other_training(change))
        return result

    def _count_failed_sessions(self, result: probe.ProbeResult) -> None:
        """Count the sessions in a row that failed: after `MOST_FAILED_SESSIONS`, the case is measured without any.

        The count begins anew if a session works, or if the plain command fails as well: sessions are not the cause.
        """
        blames_of_no_config = {probe.Blame.HOST, probe.Blame.SETUP, probe.Blame.UNKNOWN}
        failed = result.failure is not None and result.failure.kind.blame in blames_of_no_config
        if result.warm:
            self._failed_sessions = self._failed_sessions + 1 if failed else 0
        elif failed:
            self._failed_sessions = 0

    def _judge(self, result: probe.ProbeResult, trial: OwnTrial) -> Verdict:
        """Return the verdict on the result of a probe: its status, its values, and whether it may be the best.

        Where the purpose of the work says when a probe ends, no free memory and no hours of training are asked for.
        """
        purpose, spec = self._job.purpose, self._spec
        verdict = judge(
            result,
            *spec.objectives,
            headroom_pct=0.0 if purpose.next_answer else spec.probe.headroom_pct,
            training_hours=0.0 if purpose.next_answer else spec.search.training_hours,
            constraints=self._constraints,
            default=self._default_metrics(result),
            attempt=trial.attempt,
            is_first=trial.history.finished == 0,
        )
        by_purpose = purpose.ineligible(result) if verdict.value is not None else None
        return replace(verdict, ineligible=verdict.ineligible or by_purpose)

    def _training_change(self, result: probe.ProbeResult) -> str | None:
        """Return in words what a config trains differently from the user's own command, by the counts of both probes.

        None if they train the same in all that the trainer must keep, if the two are the same config, or if a count is
        missing.
        """
        own_config, keeps = self._space.own, self._job.bench.trainer.keeps
        if not keeps or result.training is None or own_config is None or same_launch(result.config, own_config):
            return None
        if self._own_training is None and (newest := self._study.history().newest(own_config)):
            self._own_training = newest.probe.training
        if self._own_training is None:
            return None
        baseline, changed = self._own_training.signature, result.training.signature
        changes = differences(baseline, changed, free=frozenset(PARTS) - keeps)
        return "; ".join(map(str, changes)) or None

    def _default_metrics(self, result: probe.ProbeResult) -> Mapping[str, float | None]:
        """Return the metrics of the default config at the rung of a result: name → number.

        Constraints compare the result with them. For a result of the default itself, they are its own metrics. Empty if
        the default is not measured yet, or if no constraint compares with it.
        """
        if not self._needs_default:
            return {}
        if self._is_default(result.config):
            return probe.measured(result)
        default = self._study.history().newest(self._space.default_at(self._space.rung(result.config)))
        return default.probe.metrics if default else {}

    def _is_default(self, config: Config) -> bool:
        """Return whether constraints compare other configs with this one, because it is the default of its rung."""
        return self._needs_default and same_launch(config, self._space.default_at(self._space.rung(config)))

    def _store(
        self, trial: OwnTrial, result: probe.ProbeResult, verdict: Verdict, plan: probe.ProbePlan | None
    ) -> StoredProbe:
        """Store the result of a trial with its verdict, tell the listener, and return the result with the history then.

        If the database cannot store the result, a file in the probe's folder keeps it, and StoreError is raised.
        `plan`: None if the trainer has refused the config.
        """
        folder, expected = self._job.bench.folder, trial.choice.trials_left
        record = probe_record(result, verdict, plan, folder=folder)
        try:
            history = self._study.tell(trial, verdict, record)
        except StoreError as error:
            if (file := write_unstored(trial.number, verdict, record, folder)) is None:
                raise
            kept = f"the result of the last probe is kept in {file}; the next run stores it if the trial is still open"
            raise StoreError(f"{error}\n{kept}") from error
        expected_after = None if expected is None else max(0.0, expected - 1.0)  # without this probe
        left = None if trial.confirms else self._probes_left(expected_after, history.finished)
        best = BestSoFar.of(self._study.case, history.records)
        searches_best = self._job.recording is None and len(self._spec.objectives) == 1  # several have no single best
        self._job.listener(
            ProbeEnded.of(
                self._case,
                trial,
                result,
                verdict,
                leads=searches_best and best is not None and best.trial == trial.number,
                best=best,
                finished=history.finished,
                target=self._job.target(self._spec),
                left_s=self._time_left(left, history),
            )
        )
        return StoredProbe(result, history)

    def _probes_left(self, expected: float | None, finished: int) -> float | None:
        """Return how many probes are left until the search probably ends; None if that is unknown.

        The search ends by itself, or at its target number of finished trials, whichever comes first.

        Args:
            expected: The probes until the search ends by itself; None if the strategy does not say.
            finished: The trials that have finished, of those that count towards the target.
        """
        target = self._job.target(self._spec)
        if target is None:
            return expected
        until_target = max(0, target - finished)
        if expected is None:  # a strategy that predicts its end will do so after some trials
            return None if self._study.strategy.predicts_end else until_target
        return min(until_target, expected)

    def _time_left(self, probes: float | None, history: History) -> float | None:
        """Return the seconds until the search probably ends, at most those of the budget.

        That is the time that the workers need for so many usual probes, and for the confirmations at the end. It is
        None if the number of probes or their usual length is unknown, or if probes take no time.

        Args:
            probes: The number of probes that are left; None if that is unknown.
            history: The trials of the study, which tell how long a probe usually takes and how many workers share them.
        """
        usual_s = None if self._job.simulated else history.usual_s
        if probes is None or usual_s is None:
            return None
        confirmation_s = history.confirmation_s if self._job.purpose.configs_compete else 0.0
        # only speeds, which have no largest value, are compared with the user's own config
        baseline = self._space.own if probe.largest_value(self._spec.objectives[0]) == math.inf else None
        # a predicted end is counted with the readings that compare with the baseline; those after a target come on top
        target = self._job.target(self._spec)
        are_counted = self._study.strategy.predicts_end and (target is None or history.finished + probes < target)
        if self._job.purpose.configs_compete and not are_counted and baseline and history.to_compare(baseline):
            confirmation_s += max(usual_s, confirmation_s)
        workers = history.running + 1  # this process, and those that run a trial
        return min(probes * usual_s / workers + confirmation_s, max(0.0, self._job.left_s()))

    def _has_measured_enough(self, so_far: probe.ProbeResult | None) -> bool:
        """Return whether a running probe has measured for the study's `window_seconds`."""
        return so_far is not None and (so_far.window_s or 0.0) >= self._spec.probe.window_seconds

    def _stop_function(self, trial: OwnTrial) -> probe.Stop:
        """Return a function that the prober calls again and again during a trial's probe: does the probe go on?"""
        show = self._show_function(trial, self._job.pulse) if self._job.pulse else lambda _: None  # else nobody listens
        newest: probe.ProbeResult | None = None

        def stop(so_far: probe.ProbeResult | None) -> probe.Answer:
            """Return whether the probe goes on. Unless it is interrupted, renew the trial's lease and show the probe.

            `so_far`: the result after an iteration that has just ended; None at calls between iterations.
            """
            nonlocal newest
            newest = so_far or newest
            if self._job.interrupted():  # by the user; or the time is over, and a value counts even if it is rough
                counts = self._job.is_late() and self._has_measured_enough(newest)
                return probe.Answer(probe.Next.ENOUGH if counts else probe.Next.INTERRUPTED)
            self._study.renew_lease(trial)
            show(newest)
            # the first steps show what is trained: before all of them are made, nothing is compared
            is_early = so_far is not None and so_far.training is not None and so_far.training.is_early
            if so_far and not is_early and (change := self._training_change(so_far)):
                return probe.Answer(probe.Next.OTHER_TRAINING, change)
            return self._answer_after_iteration(trial, so_far) if so_far else probe.Answer(probe.Next.GO)

        return stop

    def _show_function(self, trial: OwnTrial, pulse: Pulse) -> Callable[[probe.ProbeResult | None], None]:
        """Return a function that sends the listener a `ProbeRunning` event about a trial's probe, which begins now.

        The listener is the caller's function that gets all events. `pulse` says how often, and by which clock.
        """
        objective, limits = self._spec.objectives[0], self._spec.probe
        began_s = shown_s = pulse.clock.now()
        pulse.utilisation()  # drops what was measured before this probe

        def show(newest: probe.ProbeResult | None) -> None:
            """Send the event, unless the last one is less than `pulse.every_s` seconds old.

            `newest`: the result after the newest iteration; None before the first.
            """
            nonlocal shown_s
            now_s = pulse.clock.now()
            if now_s - shown_s < pulse.every_s:
                return
            shown_s = now_s
            phase: Phase = "starting"
            if newest is not None:  # without a window, no iteration after the warm-up has ended yet
                phase = "warm-up" if newest.window_s is None else "measuring"
            event = ProbeRunning(
                case=self._case.name,
                trial=trial.number,
                phase=phase,
                seconds=now_s - began_s,
                iteration=newest and newest.iterations,
                usual_iterations=limits.iterations - limits.warmup_iterations,  # those of a window
                value=newest and probe.value(newest, objective),
                error=newest and probe.error(newest, objective),
                samples_per_s=newest and newest.samples_per_s,
                utilisation=tuple(pulse.utilisation()),
            )
            self._job.listener(event)

        return show

    def _answer_after_iteration(self, trial: OwnTrial, so_far: probe.ProbeResult) -> probe.Answer:
        """Return whether a probe goes on after an iteration, by the pruner and by how precise its values are.

        The pruner gets each value. It ends only a probe that competes for the best: one that measures a config again,
        or the default with which others are compared, runs to its usual end. So does a probe that other programs slow
        down, because its config may be as fast as the others.
        """
        objectives = self._spec.objectives
        if self._job.purpose.next_answer:
            return self._job.purpose.next_answer(so_far)
        value = probe.value(so_far, objectives[0])
        is_hopeless = False
        if value is not None and not so_far.level_changed:  # otherwise the mean is not yet that of the config
            is_hopeless = self._study.report(trial, so_far.iterations, value)
        is_competing = self._job.purpose.configs_compete and not trial.is_repeat and not self._is_default(trial.config)
        if is_hopeless and is_competing and self._has_measured_enough(so_far) and not so_far.is_disturbed:
            why = f"behind the others; stopped after iteration {so_far.iterations} ({self._spec.pruner.name})"
            return probe.Answer(probe.Next.PRUNED, why)
        incumbent = self._study.incumbent() if is_competing else None
        return next_answer(so_far, objectives, self._spec.probe, incumbent)
