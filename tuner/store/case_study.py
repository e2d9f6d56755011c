"""The study of one case: what its trials come to, the next config, a running probe, and the result.

A probe is a short run of the training with one config, and a trial is its record in the database. Several workers, each
a process, may share a study: each trial holds a lease, which names its process and is renewed while that lives. This
file also makes what the database keeps of an ended trial, and ends trials whose process is gone.

A session is a started trainer that serves several probes. To confirm a config is to measure it again by the trainer's
plain command, outside any session.
"""

import json
import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from optuna.pruners import BasePruner, NopPruner
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState, create_trial
from pydantic import ValidationError

from tuner.probe import ProbePlan, ProbeResult, measured, number_of
from tuner.records import schema
from tuner.records.case_record import CaseRecord, StudyAttributes, encode
from tuner.records.trial import INTERRUPTED, ProbeRecord, attributes
from tuner.search import trials
from tuner.search.choosing import FIRST_TRIALS, Aim, Choice, Done, History, Starts, Strategy, confirmation, one_start
from tuner.search.verdict import Verdict
from tuner.store.database import Database, FileLockedError
from tuner.store.leases import BEAT_S, Lease, is_held
from tuner.store.opening import open_study, unchanged_attributes
from tuner.store.storage import RunningProbe
from tuner.study import Config, Space, launch_digest, open_anew


def probe_record(result: ProbeResult, verdict: Verdict, plan: ProbePlan | None, *, folder: Path) -> ProbeRecord:
    """Return the record of a probe that the database keeps.

    Args:
        result: What the probe showed.
        verdict: What the study makes of it.
        plan: The plan of the probe; None if the trainer has refused the config.
        folder: The study's folder. Paths below it are kept relative to it, so that it may move.
    """
    fields_of_both = {field.name for field in fields(ProbeResult)} & {field.name for field in fields(ProbeRecord)}
    return ProbeRecord(
        **{name: getattr(result, name) for name in fields_of_both},
        digest=launch_digest(result.config),
        status=verdict.status,
        ineligible=verdict.ineligible,
        launched=result.launched,
        metrics=measured(result),
        agent_config=_within(folder, plan.agent_config) if plan else "",
        base_agent=plan.base_agent if plan else "",
        session_key=plan.session_key if plan and plan.request is not None else None,
        out_dir=_within(folder, str(plan.slot.out_dir)) if plan and result.launched else "",
    )


def _within(folder: Path, path: str) -> str:
    """Return a path relative to a folder if it lies inside; otherwise, and where it is empty, the path itself."""
    return str(Path(path).relative_to(folder)) if path and Path(path).is_relative_to(folder) else path


RESULT_FILE = "result.json"
"""The file in a probe's folder with a result that could not be stored in the database."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UnstoredResult:
    """The result of a trial that could not be stored in the database, as a file keeps it."""

    number: int
    """The number of the trial."""
    lease: Lease
    """The process that ran the trial."""
    verdict: Verdict
    record: ProbeRecord

    def is_of(self, trial: FrozenTrial) -> bool:
        """Return whether this is the result of a trial: a trial of another database may have the same number."""
        lease = Lease.read(trials.typed_trial(trial).lease)
        return self.number == trial.number and lease is not None and lease.is_of_same_process(self.lease)


class AbandonedTrials(NamedTuple):
    """How many trials were left running by processes that are gone, by what became of them."""

    stored: int
    """The number of trials whose result was in a file and is now stored."""
    to_repeat: int
    """The number of trials whose configs will be probed again."""


def write_unstored(number: int, verdict: Verdict, record: ProbeRecord, folder: Path) -> Path | None:
    """Write the result of a trial that the database cannot store to a file in the probe's folder.

    `CaseStudy.end_abandoned_trials` stores it later.

    Args:
        number: The number of the trial.
        verdict: What the study would record.
        record: What it would keep of the probe.
        folder: The study's folder.

    Returns:
        The file; None if nothing was launched or the file cannot be written.
    """
    if not record.out_dir:
        return None
    unstored = UnstoredResult(number=number, lease=Lease.mine(), verdict=verdict, record=record)
    file = folder / record.out_dir / RESULT_FILE
    try:
        file.parent.mkdir(parents=True, exist_ok=True)  # the folder of a probe without files has been removed
        with open_anew(file) as stream:
            stream.write(json.dumps(schema.storable(asdict(unstored)), indent=2).encode())
    except OSError:
        return None
    return file


def _unstored_results(probes: Path) -> dict[Path, UnstoredResult]:
    """Return the files of `write_unstored` below the folder of a case's probes, each with the result that it keeps."""
    results: dict[Path, UnstoredResult] = {}
    for file in probes.glob(f"*/{RESULT_FILE}"):
        with suppress(OSError, ValidationError):  # the file is incomplete, or of another version
            results[file] = schema.adapter(UnstoredResult).validate_json(file.read_bytes())
    return results


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnTrial:
    """A trial that this process now runs."""

    trial_id: int
    """The id of the trial in the database."""
    number: int
    config: Config
    choice: Choice
    """Why the config was chosen, and how it is to be measured."""
    history: History
    """What the study had probed before the trial."""
    attempt: int = 1
    """1 + the number of failures in a row that this config has had just before."""
    is_repeat: bool = False
    """Whether the config was measured before. Nothing ends such a probe early: only fast repeats would be left."""

    @property
    def confirms(self) -> bool:
        """Whether the trial only confirms: the plain command measures again a config on which the result depends."""
        return self.choice.aim is Aim.CONFIRM


_AIM_ATTRIBUTES = {Aim.CONFIRM: schema.CONFIRMS, Aim.SOAK: schema.SOAKS, Aim.REPORT: schema.REPORTED_OOM}
"""Aim of a probe → the attribute of the trial that says so."""


def _expected_s(choice: Choice, history: History) -> float | None:
    """Return the seconds that a probe is expected to take, to decide whether it fits into the time left.

    They are those that its chooser expects, and at most the median of the case's probes: a longer expectation is often
    wrong, and a probe that the end of the time cuts off may still give a rough value. None before the first value.
    """
    usual_s = history.usual_s
    if usual_s is None or choice.expected_s is None:
        return usual_s
    return min(choice.expected_s, usual_s)


def _leaves_time_to_confirm(choice: Choice, history: History, left_s: float, baseline: Config | None) -> bool:
    """Return whether enough time is left after a probe to confirm the result: to measure own config and best again.

    The answer is always yes before `FIRST_TRIALS` trials have finished, so that the search can begin, except where a
    disturbed reading of the own config hides which config is faster: see `History.disturbed_baseline`.

    Args:
        choice: The probe.
        history: What the study has probed so far.
        left_s: The seconds that are left before the probe.
        baseline: The user's own config, if there is one.
    """
    next_s, usual_s = _expected_s(choice, history), history.usual_s
    if next_s is None or usual_s is None:
        return True
    confirmations_s = usual_s + max(usual_s, history.confirmation_s)  # of the own config and the best
    is_enough = left_s >= next_s + confirmations_s
    return is_enough or (history.finished < FIRST_TRIALS and not (baseline and history.disturbed_baseline(baseline)))


Answer = TypeVar("Answer")
Otherwise = TypeVar("Otherwise")


class CaseStudy:
    """The study of one case in the database: begins and ends its trials, and returns their `history`."""

    def __init__(
        self,
        database: Database,
        name: str,
        *,
        space: Space,
        strategy: Callable[[int], Strategy],
        pruner: BasePruner,
        identity: dict[str, Any],
        case: CaseRecord,
        objectives: Sequence[str] = ("value",),
        confirm: bool = True,
    ) -> None:
        """Begin the study of a case, or resume it if the database has it, and store the record of the case.

        Args:
            database: The database.
            name: The name of the study, STUDY/CASE.
            space: The parameters and their values.
            strategy: Makes the strategy from the number of trials so far: a resumed search draws by another seed.
            pruner: Decides which probes of bad configs end early.
            identity: The settings that must not change while the study goes on, such as space, trainer and objective.
            case: The record of the case, which other tools read.
            objectives: The names of a trial's values, in their order. With several objectives, the best is a Pareto
                front and no probe is pruned.
            confirm: Whether the trainer's plain command measures the best again if a session has measured it.

        Raises:
            StoreError: The identity differs from that of the study in the database; the message names the differences.
        """

        def opened() -> tuple[Study, int]:
            """Return the study, after storing the record of its case, and the number of its trials."""
            study = open_study(database, name, objectives=objectives, pruner=pruner, identity=identity)
            trials_so_far, before = len(study.get_trials(deepcopy=False)), StudyAttributes(study.user_attrs).case
            if before and case.raises_a_limit_of(before):
                study.set_user_attr(schema.LONGER, trials_so_far)  # these may be tried again if they took too long
            study.set_user_attr(schema.CASE, encode(case))
            return study, trials_so_far

        self._study, trials_so_far = database.transact(opened, exclusive=True)  # no other worker creates it meanwhile
        self._database, self._name = database, name
        self._has_front = len(objectives) > 1
        self._confirm = confirm
        self._space, self.case = space, case
        self._identity = schema.storable(identity)
        self.strategy = strategy(trials_so_far)
        self._waits_for_machine = False
        """Whether no trial begins here until other probes on this machine end: a confirmation must run alone."""
        self._running: list[RunningProbe] = []
        """The probes that ran when they were read last, of all cases of the study file."""
        self._beat_s = 0.0
        """When the lease was renewed last."""
        self._incumbent: float | None = None
        """The value that a running probe must beat, when it was read last."""
        self._reported: dict[int, int] = {}
        """Number of a trial → the last iteration that was reported to the pruner."""

    def _unless_locked(self, work: Callable[[], Answer], otherwise: Otherwise) -> Answer | Otherwise:
        """Do some work in a transaction and return its answer, or `otherwise` if another program locks the file.

        This is for work during a probe, which waits only `SLICE_S` seconds for the file: the trainer's output is not
        read meanwhile, and the trainer may be the program that locks the file.
        """
        try:
            return self._database.transact(work, short_wait=True)
        except FileLockedError:
            return otherwise

    def history(self) -> History:
        """Return what the study has probed so far, read now."""
        history = History(self._study, self._space)
        self._database.transact(lambda: (history.trials, history.signs))  # the history keeps what it has read
        return history

    @property
    def awaited_now(self) -> frozenset[int]:
        """The ids of the running trials that must end before this process can begin a trial, read now.

        These are all trials of the case, because their results may change what is left to do. Where a confirmation
        needs the machine for itself, all other trials on this machine count, too.
        """
        self._database.transact(self._running_probes)  # reads them into `_running`
        return self.awaited_at_ask

    @property
    def awaited_at_ask(self) -> frozenset[int]:
        """The ids of the trials that `awaited_now` returns, as they were at its last call or at the last `ask`."""
        waits_for = [
            probe for probe in self._running if probe.case == self._name or (self._waits_for_machine and probe.is_here)
        ]
        return frozenset(probe.trial for probe in waits_for)

    def _running_probes(self) -> list[RunningProbe]:
        """Return the probes that run now, of all cases of the study file."""
        study = self._name.split("/", 1)[0]
        self._running = self._database.storage.running_probes(study, self._database.lives)
        return self._running

    def incumbent(self) -> float | None:
        """Return the value that a running probe must beat, the best mean so far. None with several objectives.

        While another program locks the file of the database, it is the value that was read last.
        """
        if not self._has_front:
            self._incumbent = self._unless_locked(lambda: trials.incumbent(self._study), self._incumbent)
        return self._incumbent

    @property
    def attributes(self) -> StudyAttributes:
        """What the study keeps beside its trials: the rungs of an `auto` ladder, for example."""
        return self._database.transact(lambda: StudyAttributes(self._study.user_attrs))

    def fixed_rungs(self, make: Callable[[Sequence[FrozenTrial]], tuple[int, ...]]) -> tuple[int, ...]:
        """Return the rungs that the study keeps for an `auto` ladder; `make` them from the trials if there are none.

        This happens in one transaction, so that all workers get the same rungs. Stored rungs never change.
        """

        def stored_or_made() -> tuple[int, ...]:
            """Return the stored rungs; make and store them if there are none."""
            if (stored := self.attributes.rungs) is not None:
                return stored
            made = make(self.history().trials)
            self._study.set_user_attr(schema.RUNGS, made)
            return made

        return self._database.transact(stored_or_made, exclusive=True)

    def end_abandoned_trials(self, probes: Path) -> AbandonedTrials:
        """End the running trials whose process is gone, so that their configs can be probed again; return how many.

        If a file holds the result of such a trial, the trial ends with this result: see `write_unstored`. The files are
        deleted once the database has committed.

        `probes`: the folder with the folders of the case's probes.
        """

        def end_trials() -> list[Path | None]:
            """End each abandoned trial, and return the file whose result it has now; None if it is to be repeated."""
            running = self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
            lives = self._database.lives
            abandoned = [trial for trial in running if not is_held(trials.typed_trial(trial).lease, lives)]
            results = _unstored_results(probes) if abandoned else {}
            files: list[Path | None] = []
            for trial in abandoned:
                file = next((file for file, result in results.items() if result.is_of(trial)), None)
                if file:
                    verdict, record = results[file].verdict, results[file].record
                else:
                    digest = launch_digest(trial.params)
                    verdict = Verdict(state=TrialState.FAIL, status=INTERRUPTED, retry=True)
                    record = ProbeRecord(config=trial.params, digest=digest, status=INTERRUPTED, launched=True)
                self._end_trial(trial._trial_id, verdict, record)
                files.append(file)
            return files

        files = self._database.transact(end_trials, exclusive=True)
        stored = [file for file in files if file]
        for file in stored:
            file.unlink(missing_ok=True)
        return AbandonedTrials(stored=len(stored), to_repeat=len(files) - len(stored))

    def ask(
        self,
        target: int | None,
        starts_needed: Starts = one_start,
        has_time: Callable[[float | None], bool] = lambda _: True,
        left_s: Callable[[], float] = lambda: math.inf,
    ) -> OwnTrial | None:
        """Begin a trial of the next config, with a lease of this process, and return it; None where none may begin.

        Once the search has ended, the best config is confirmed if only sessions have measured it. The last part of a
        limited time is kept for this. A confirmation waits until no other probe of the study runs on this machine, and
        no other probe begins here while it runs: they would disturb it.

        Args:
            target: The number of ended and running trials at which the search ends; None where only the strategy ends
                it.
            starts_needed: Returns how many trainer starts a probe of a config takes now: 0 in an open session.
            has_time: Returns whether a probe of so many seconds may begin. The seconds are the median of the case's
                probes, or fewer where the strategy expects fewer; None before the case's first value.
            left_s: Returns the seconds in which probes may begin.

        Raises:
            StoreError: The database cannot be used, or somebody has changed the settings of the study.
        """

        def begin() -> OwnTrial | None:
            """Begin a trial, and return it; None where none may begin."""
            stored = unchanged_attributes(self._database, self._study, self._identity)
            history = History(self._study, self._space)
            running = self._running_probes()
            probes_here = [probe for probe in running if probe.is_here] if self._confirm else []
            # a confirmation runs alone on its machine: one that runs now, or the one that is next
            is_confirming_here = any(probe.confirms for probe in probes_here)
            choice = None if is_confirming_here else self._next_choice(history, target, starts_needed, left_s())
            is_confirmation = choice is not None and choice.aim is Aim.CONFIRM
            self._waits_for_machine = is_confirming_here or (is_confirmation and bool(probes_here))
            if choice is None or self._waits_for_machine or not has_time(_expected_s(choice, history)):
                return None
            trial = self._begin_trial(choice, history)
            # the search goes on, so why it ended or stopped before is out of date
            for name, text in ((schema.ENDED, stored.ended), (schema.STOPPED, stored.stopped)):
                if text:
                    self._study.set_user_attr(name, None)
            return trial

        return self._database.transact(begin, exclusive=True)

    def _begin_trial(self, choice: Choice, history: History) -> OwnTrial:
        """Begin a trial with a lease of this process, in a transaction that is open, and return it for the prober.

        Args:
            choice: The config, and why it was chosen.
            history: What the study had probed before the trial.
        """
        attributes: dict[str, Any] = {schema.LEASE: self._database.lease()}
        if choice.aim in _AIM_ATTRIBUTES:
            attributes[_AIM_ATTRIBUTES[choice.aim]] = choice.details
        if choice.origin:
            attributes[schema.ORIGIN] = choice.origin
        trial = trials.running(self._space, choice.config, attributes)
        storage = self._database.storage
        trial_id = storage.create_new_trial(self._study._study_id, trial)
        return OwnTrial(
            trial_id=trial_id,
            number=storage.get_trial_number_from_id(trial_id),
            config=trial.params,
            choice=choice,
            history=history,
            attempt=1 + trials.failures_in_a_row(history.trials, trial.params),
            is_repeat=history.newest(trial.params) is not None,
        )

    def _next_choice(self, history: History, target: int | None, starts_needed: Starts, left_s: float) -> Choice | None:
        """Return what to probe next: the search's next choice, or else a confirmation; None where neither has any.

        A confirmation comes first if the time that is left is too short for the search's next probe and the
        confirmations after it. None is chosen while a probe of the case runs, which may change what to confirm.

        Args:
            history: What the study has probed so far.
            target: The number of ended and running trials at which the search ends; None without such a number.
            starts_needed: Returns how many trainer starts a probe of a config takes now.
            left_s: The seconds in which probes may begin.
        """
        choice = None
        if target is None or history.finished + history.running < target:
            answer = self.strategy.choose(history, starts_needed)
            choice = answer if isinstance(answer, Choice) else None
        if choice and choice.aim is not Aim.SEARCH:
            return choice
        if choice and _leaves_time_to_confirm(choice, history, left_s, self._space.own):
            return choice
        may_confirm = self._confirm and not history.running
        config = self.strategy.confirm(history, starts_needed) if may_confirm else None
        return confirmation(config) if config else choice

    def why_done(self, *, keep: bool = True) -> str | None:
        """Return in words why the strategy has nothing left to probe; None while something is left.

        `keep`: whether the study stores this reason until its next trial begins. It never does while other workers
        still probe, because their results may change what is left.
        """

        def read_why() -> str | None:
            """Return why nothing is left to probe, and store it as the caller wants; None while something is left."""
            history = self.history()
            answer = self.strategy.choose(history, one_start)  # the next work finds no open session
            reason = answer.reason if isinstance(answer, Done) else None
            if keep and not history.running:
                self._study.set_user_attr(schema.ENDED, reason)
            return reason

        return self._database.transact(read_why, exclusive=True)  # no other worker begins a trial meanwhile

    def stop(self, sentence: str) -> None:
        """Store a sentence: how the search stopped, and how to go on. The next trial that begins removes it."""
        self._database.transact(lambda: self._study.set_user_attr(schema.STOPPED, sentence), exclusive=True)

    def report(self, trial: OwnTrial, iteration: int, value: float) -> bool:
        """Report the objective so far to the pruner, and return whether it would stop the probe.

        Nothing is reported, and False returned, in three cases:

        - The study has several objectives, for which Optuna takes no reports.
        - The iteration was reported before: Optuna takes one report per iteration. A window that begins anew after a
          change of level has fewer iterations than the window before it.
        - Another program locks the file of the database.
        """
        if self._has_front or iteration <= self._reported.get(trial.number, 0):
            return False

        def send() -> bool:
            """Return whether the pruner would stop the probe, now that it has the report."""
            storage, pruner = self._database.storage, self._study.pruner
            storage.set_trial_intermediate_value(trial.trial_id, iteration, value)
            stops_none = isinstance(pruner, NopPruner)  # then nothing is read for it
            return not stops_none and pruner.prune(self._study, storage.get_trial(trial.trial_id))

        would_prune = self._unless_locked(send, None)
        if would_prune is not None:
            self._reported[trial.number] = iteration
        return bool(would_prune)

    def renew_lease(self, trial: OwnTrial) -> None:
        """Renew the lease of the trial every `BEAT_S` seconds, as a sign for other workers that this process lives."""

        def renew() -> float:
            """Renew the lease, and return the time at which that was done."""
            self._database.storage.set_trial_user_attr(trial.trial_id, schema.LEASE, self._database.lease())
            return time.monotonic()

        if time.monotonic() - self._beat_s >= BEAT_S:
            self._beat_s = self._unless_locked(renew, self._beat_s)

    def tell(self, trial: OwnTrial, verdict: Verdict, probe: ProbeRecord) -> History:
        """End a trial: store its verdict and the record of its probe, and return the history with this trial."""
        return self._database.transact(lambda: self._end_trial(trial.trial_id, verdict, probe))

    def _end_trial(self, trial_id: int, verdict: Verdict, probe: ProbeRecord) -> History:
        """End a trial with its verdict and its record, and return the history with it. The caller holds a transaction.

        A trial that the pruner has stopped gets the last value that was reported to the pruner.
        """
        storage = self._database.storage
        for name, fact in attributes(probe, retry=verdict.retry, error=verdict.error).items():
            storage.set_trial_user_attr(trial_id, name, fact)
        constraints = create_trial(state=TrialState.FAIL, constraints=verdict.constraints).system_attrs
        for name, violation in constraints.items():
            storage.set_trial_system_attr(trial_id, name, violation)
        values = verdict.values
        if verdict.state is TrialState.PRUNED and (steps := storage.get_trial(trial_id).intermediate_values):
            values = [steps[max(steps)]]  # the last report, as `Study.tell` stores it
        storage.set_trial_state_values(trial_id, verdict.state, values)
        history = self.history()
        if not self._has_front:
            self._store_best(history)
        return history

    def _store_best(self, history: History) -> None:
        """Store in words which config is the best, for people who look at the study in other tools.

        It is stored only where Optuna's best trial, which has the highest single value, misleads them.
        """
        chosen = history.best(self.case.defaults)
        highest = max((trial.value for trial in history.complete if trial.value is not None), default=None)
        text = None
        if chosen is not None and chosen.value != highest:
            text = (
                f"trial {chosen.trial}, {chosen.value:.6g}: the mean of {number_of(chosen.readings, 'measurement')}; "
                "the highest single value may be by chance, of a session, or of a config that may not be the best"
            )
        if text != self._study.user_attrs.get(schema.BEST_IS):
            self._study.set_user_attr(schema.BEST_IS, text)
