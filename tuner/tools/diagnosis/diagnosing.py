"""Diagnoses a study of any Optuna program: reads its database, finds why GPUs did not train more, and says it.

`tuner` itself keeps a study of Optuna for each case, so a study of `tuner` may be several of Optuna. Its trials have
records, which say more than those of other programs. A journal is the file in which Optuna's JournalStorage keeps
studies. A cause is something that keeps the GPUs of a study from training, with the change that ends it.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy
from sqlalchemy import Connection, Engine, and_, func, select

from tuner.errors import EmptyStoreError
from tuner.export import StudyReader, reading
from tuner.probe import MIB_PER_GIB, duration, of_known
from tuner.records.schema import CASE, FACTS, PARAMETERS, STATE, STEPS, STUDIES, TRIALS, is_case_of, moment
from tuner.records.trial import FINISHED, INTERRUPTED, OK, PRUNED, RUNNING, TrialRecord
from tuner.records.urls import shown
from tuner.tools.diagnosis import study_times
from tuner.tools.diagnosis.study_times import GUESS, AtOnce, Facts, KnownFact
from tuner.tools.diagnosis.waits import IdleCause, causes
from tuner.trainers.registry import TRAINERS

if TYPE_CHECKING:
    from tuner.store.storage import JournalStudy

DATABASE = "database"
"""The source of what the study's database says, as the diagnosis names it beside each number."""
ENDS = {
    "COMPLETE": study_times.TrialEnd.COMPLETE,
    "PRUNED": study_times.TrialEnd.PRUNED,
    "FAIL": study_times.TrialEnd.FAILED,
}
"""How the database spells the ends of trials."""
_WORKERS = re.compile(r"(^|\.)(num_|n_)?((data_?loader|loader|data)_)?(num_|n_)?workers$")
"""Names of parameters such as `num_workers` and `data.dataloader_num_workers`, and none such as `rollout_workers`."""


def _read_foreign(engine: Engine, study: str, study_id: int, setup: study_times.Setup) -> study_times.StudyRecord:
    """Return what the database says of a study of another program.

    Args:
        engine: The database.
        study: The name of the study.
        study_id: Its id there.
        setup: What is known of the machine and the options of its trials.
    """
    with reading(engine) as connection:
        times = (TRIALS.c.datetime_start, TRIALS.c.datetime_complete)
        query = select(TRIALS.c.trial_id, STATE.label("state"), *times).where(TRIALS.c.study_id == study_id)
        rows = connection.execute(query).all()
        is_of_study = STEPS.c.trial_id.in_(select(TRIALS.c.trial_id).where(TRIALS.c.study_id == study_id))
        counts = select(STEPS.c.trial_id, func.count().label("reports")).where(is_of_study).group_by(STEPS.c.trial_id)
        reports: dict[int, int] = {row.trial_id: row.reports for row in connection.execute(counts)}
    trials = [
        StoredTrial(row.state, moment(row.datetime_start), moment(row.datetime_complete), reports.get(row.trial_id, 0))
        for row in rows
    ]
    return _record_of_trials(study, trials, setup)


class StoredTrial(NamedTuple):
    """A trial of any Optuna program."""

    state: str
    began: datetime | None
    ended: datetime | None
    reports: int
    """The number of intermediate values that it reported."""

    @property
    def times(self) -> study_times.TrialTimes | None:
        """How the trial ended, and when; None for a trial that has not ended."""
        if self.state not in ENDS:
            return None
        began_s, ended_s = seconds(self.began), seconds(self.ended)
        return study_times.TrialTimes(end=ENDS[self.state], began_s=began_s, ended_s=ended_s, reports=self.reports)


def _record_of_trials(study: str, trials: Sequence[StoredTrial], setup: study_times.Setup) -> study_times.StudyRecord:
    """Return the record of a study of another program; `setup` is what is known of its machine and its options."""
    states = [trial.state for trial in trials]
    return study_times.StudyRecord(
        study=study,
        trials=tuple(filter(None, (trial.times for trial in trials))),
        running=states.count(RUNNING),
        waiting=states.count("WAITING"),
        setup=setup,
    )


def seconds(at: datetime | None) -> float | None:
    """Return a date and time as seconds since the year 1, so that differences are seconds; None for None."""
    return at and (at.replace(tzinfo=None) - datetime.min).total_seconds()


def loader_workers(connection: Connection, studies: Sequence[int]) -> study_times.KnownFact[float] | None:
    """Return the mean number of workers of a data loader over the trials of some studies; None where no trial shows it.

    It is the value of a parameter such as `num_workers`. A negative value, with which some trainers ask for a number of
    their own, is left out. `studies`: the ids of the studies.
    """
    of_studies = PARAMETERS.c.trial_id.in_(select(TRIALS.c.trial_id).where(TRIALS.c.study_id.in_(studies)))
    query = select(PARAMETERS).where(of_studies, PARAMETERS.c.param_name.like("%workers%"))  # few rows for the pattern
    rows = [row for row in connection.execute(query) if _WORKERS.search(str(row.param_name).lower())]
    values = [value for row in rows if (value := _number(row)) is not None and 0.0 <= value < math.inf]
    return study_times.mean_as_fact(values, DATABASE)


def _number(row: sqlalchemy.Row[Any]) -> float | None:
    """Return the number that a row of `PARAMETERS` gives a parameter in a trial; None for a value that is no number."""
    try:
        distribution = json.loads(row.distribution_json)
        choices = distribution["attributes"].get("choices")
        if choices is None:
            return float(row.param_value)
        return float(choices[int(row.param_value)])  # of a categorical parameter, Optuna stores the index of the choice
    except (ValueError, TypeError, LookupError, AttributeError):
        return None


def _read_own(engine: Engine, study: str, case: str | None) -> study_times.StudyRecord:
    """Return what the database says of a study of `tuner`, which must be there.

    `case`: the only case to read, which must be there, too; None for all cases.
    """
    reader = StudyReader(engine, study)
    cases = [view for view in reader.cases if case in {None, view.name}]
    trials = [trial for view in cases for trial in view.trials]
    ended = [trial for trial in trials if trial.state in FINISHED]
    cards = [device for trial in ended for device in trial.probe.devices if device.is_gpu]
    others_pct = [trial.probe.others_pct for trial in ended if trial.probe.others_pct is not None]
    most_cards = max((sum(name.startswith("cuda") for name in view.record.devices) for view in cases), default=0)
    return study_times.StudyRecord(
        study=study if case is None else f"{study}/{case}",
        trials=tuple(map(_times_of_probe, ended)),
        running=sum(trial.state == RUNNING for trial in trials),
        setup=study_times.Setup(
            duty_pct=_mean_utilisation(ended),
            cores=_cores(ended),
            gpus_per_trial=study_times.as_fact(most_cards or None, DATABASE),
            gpu_memory_gib=_largest_gib(device.mem_total_mib for device in cards),
            memory_used_gib=_largest_gib(device.mem_peak_mib for device in cards),
            others_pct=study_times.mean_as_fact(others_pct, DATABASE),
            data_wait=_data_wait(ended) or _no_data_wait(view.record.trainer.get("name", "") for view in cases),
        ),
        failures=Counter(_failure(trial) for trial in ended if _end_of_probe(trial) is study_times.TrialEnd.FAILED),
        is_ours=True,
        has_sessions=any(trial.probe.warm for trial in ended),
    )


def _times_of_probe(trial: TrialRecord) -> study_times.TrialTimes:
    """Return how a probe ended, and when."""
    end, startup_s = _end_of_probe(trial), trial.probe.start_up_s
    was_killed = end is study_times.TrialEnd.INTERRUPTED and trial.probe.total_s is None
    ended_s = None if was_killed else seconds(trial.completed)  # another process has ended it later
    times = study_times.TrialTimes(end=end, began_s=seconds(trial.started), ended_s=ended_s, startup_s=startup_s)
    never_trained = startup_s is None and end in {study_times.TrialEnd.FAILED, study_times.TrialEnd.INTERRUPTED}
    return replace(times, startup_s=times.took_s) if never_trained else times


def _end_of_probe(trial: TrialRecord) -> study_times.TrialEnd:
    """Return how a probe ended.

    The status of a failure decides, because Optuna's state of a probe that ran out of memory is `PRUNED`, too.
    """
    if trial.status == OK:
        return ENDS[trial.state]
    by_status = {PRUNED: study_times.TrialEnd.PRUNED, INTERRUPTED: study_times.TrialEnd.INTERRUPTED}
    return by_status.get(str(trial.status), study_times.TrialEnd.FAILED)


def _failure(trial: TrialRecord) -> str:
    """Return the kind of a probe's failure, and whether other programs were busy beside the probe."""
    return f"{trial.status}{study_times.BESIDE_OTHERS if trial.probe.is_disturbed else ''}"


def _mean_utilisation(trials: Iterable[TrialRecord]) -> study_times.KnownFact[float] | None:
    """Return the mean utilisation of the GPUs in percent, over all seconds of the trials.

    It was measured in the windows, and counts for all the time after the start-ups. Start-ups and failures count as
    idle.
    """
    percent_s = all_s = 0.0  # percent times seconds, and seconds
    for trial in trials:
        probe, util_pct = trial.probe, of_known(fmean, (device.util_mean_pct for device in trial.probe.devices))
        all_s += probe.total_s or 0.0
        if util_pct is not None and probe.total_s and probe.start_up_s is not None:
            percent_s += util_pct * (probe.total_s - probe.start_up_s)
    mean_pct = percent_s / all_s if percent_s else None
    return study_times.as_fact(mean_pct, f"{DATABASE}; start-ups and failures count as idle")


def _data_wait(trials: Iterable[TrialRecord]) -> study_times.KnownFact[float] | None:
    """Return the mean share of training, from 0 to 1, that waits for the next batch of a loader; None if not counted.

    Each trial has the share of its leading rank, weighted by the seconds of its window.
    """
    counted = [
        (trial.probe.training.shares.data, trial.probe.window_s)
        for trial in trials
        if trial.probe.training and trial.probe.training.shares and trial.probe.window_s
    ]
    all_s = sum(window_s for _, window_s in counted)
    return study_times.as_fact(sum(data * window_s for data, window_s in counted) / all_s if all_s else None, DATABASE)


def _no_data_wait(trainers: Iterable[str]) -> study_times.KnownFact[float] | None:
    """Return a wait of 0 where none of the trainers, which are named, loads data; None where one may."""
    names = set(trainers)
    may_load = any(name not in TRAINERS or TRAINERS[name].loads_data for name in names)
    return None if may_load else study_times.as_fact(0.0, f"{', '.join(names)} has no data loader")


def _cores(trials: Iterable[TrialRecord]) -> study_times.KnownFact[int] | None:
    """Return the cores of the smallest machine that has measured: every trial had at least as many."""
    texts = (trial.probe.host.get("cores", "") for trial in trials)
    return study_times.as_fact(min((int(text) for text in texts if text.isdecimal()), default=None), DATABASE)


def _largest_gib(sizes_mib: Iterable[float | None]) -> study_times.KnownFact[float] | None:
    """Return the largest of the sizes that are known, in GiB; None where none is."""
    sizes_gib = (size / MIB_PER_GIB for size in sizes_mib if size is not None)
    return study_times.as_fact(max(sizes_gib, default=None), DATABASE)


class Diagnosis(NamedTuple):
    """What a study spent its time on, and why its GPUs did not train more."""

    facts: study_times.Facts
    causes: tuple[IdleCause, ...]
    """The largest first."""


def diagnose(engine: Engine, study: str, given: study_times.Setup | None = None) -> Diagnosis:
    """Return the diagnosis of a study of any Optuna program.

    Args:
        engine: The study's database.
        study: The name of an Optuna study, or of a study of `tuner`, whose cases are Optuna studies.
        given: What the user says of the machine and the trials; it counts before what the database says.

    Raises:
        EmptyStoreError: There is no such study, or none of its trials has ended.
    """
    return diagnose_record(_record_in_database(engine, study), given)


def diagnose_journal(path: Path, study: str, given: study_times.Setup | None) -> Diagnosis:
    """Return the diagnosis of a study in a journal. Raises EmptyStoreError as `diagnose` does, and StoreError."""
    from tuner.store.storage import read_journal, studies_of  # noqa: PLC0415 - loads Optuna, which takes long

    journal = read_journal(path, study)
    if journal is None:
        raise EmptyStoreError(f"{path} has no study {study!r}; {_names_to_choose_from(studies_of(path))}")
    return diagnose_record(record_of_journal(journal, study), given)


def record_of_journal(journal: "JournalStudy", study: str) -> study_times.StudyRecord:
    """Return the record of a study in a journal: when its trials ran, the workers of their data loaders, and `n_jobs`.

    The workers are the mean of a parameter such as `num_workers`. `n_jobs`, the threads of Optuna's `optimize`, is the
    most trials that one process ran at the same time.
    """
    workers = [
        float(value)
        for trial in journal.trials
        for name, value in trial.params.items()
        if _WORKERS.search(name.lower()) and isinstance(value, int | float) and 0.0 <= value < math.inf
    ]
    trials = [
        StoredTrial(trial.state.name, trial.datetime_start, trial.datetime_complete, len(trial.intermediate_values))
        for trial in journal.trials
    ]
    by_process: dict[object, list[study_times.Interval]] = {}
    for process, trial in zip(journal.processes, trials, strict=False):
        if trial.times and trial.times.running:
            by_process.setdefault(process, []).append(trial.times.running)
    n_jobs = max((study_times.Timeline(intervals).most for intervals in by_process.values()), default=None)
    setup = study_times.Setup(
        loader_workers=study_times.mean_as_fact(workers, "journal"), n_jobs=study_times.as_fact(n_jobs, "journal")
    )
    return _record_of_trials(study, trials, setup)


def diagnose_record(record: study_times.StudyRecord, given: study_times.Setup | None) -> Diagnosis:
    """Return the diagnosis of a study's record. Raises EmptyStoreError if none of its trials has ended.

    `given` is what the user says, which counts before what the record says. What both lack is estimated.
    """
    if not record.trials:
        counts = f"{record.running} running, {record.waiting} waiting"
        raise EmptyStoreError(f"study {record.study!r} has no trial that has ended ({counts}); run it first")
    if given:
        record = replace(record, setup=given.or_else(record.setup))
    record = study_times.with_estimated_startups(record)
    facts = study_times.gather(record)
    return Diagnosis(facts=facts, causes=tuple(causes(facts)))


def _record_in_database(engine: Engine, study: str) -> study_times.StudyRecord:
    """Return what the database says of a study of any Optuna program. Raises EmptyStoreError if there is none.

    Each case of the tuner is a study of Optuna that has the attribute `CASE`. So `study` may name a study of another
    program, one case of a study of the tuner (`STUDY/CASE`), or a study of the tuner with all its cases.
    """
    is_case = and_(FACTS.c.study_id == STUDIES.c.study_id, FACTS.c.key == CASE)
    with_key = select(STUDIES.c.study_id, FACTS.c.key).outerjoin_from(STUDIES, FACTS, is_case)
    name, _, case = study.partition("/")
    with reading(engine) as connection:
        exact = connection.execute(with_key.where(STUDIES.c.study_name == study)).first()
        cases = [exact] if exact else connection.execute(with_key.where(is_case_of(study))).all()
        if not cases:
            names = connection.scalars(select(STUDIES.c.study_name).order_by(STUDIES.c.study_name)).all()
            raise EmptyStoreError(f"{shown(engine.url)} has no study {study!r}; {_names_to_choose_from(names)}")
        workers = loader_workers(connection, [row.study_id for row in cases])
    if exact and not exact.key:  # another program's
        return _read_foreign(engine, study, exact.study_id, study_times.Setup(loader_workers=workers))
    record = _read_own(engine, name, case if exact else None)
    ranks = record.setup.gpus_per_trial.value if record.setup.gpus_per_trial else 1
    all_workers = workers and replace(  # the parameter is that of a rank
        workers, **{name: getattr(workers, name) * ranks for name in ("value", "low", "high")}
    )
    return replace(record, setup=record.setup.or_else(study_times.Setup(loader_workers=all_workers)))


def _names_to_choose_from(names: Sequence[str]) -> str:
    """Return the names of the first ten studies, and how to diagnose one of them."""
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    shown_names = f"{', '.join(names[:10])}{more}; name one with --study-name" if names else "none"
    return f"its studies are {shown_names}"


OPTIONS = {
    "startup_s": "--startup-seconds",
    "duty_pct": "--duty",
    "loader_workers": "--loader-workers",
    "cores": "--cores",
    "n_jobs": "--n-jobs",
    "gpus": "--gpus",
    "gpus_per_trial": "--gpus-per-trial",
    "gpu_memory_gib": "--gpu-memory",
    "memory_used_gib": "--memory-used",
}
"""The field of `Setup` → the option that gives it."""


class Row(NamedTuple):
    """A fact of a study in words."""

    label: str
    """What the fact is about."""
    fact: str
    source: str
    """Who says so."""


def rows(facts: Facts) -> Iterator[Row]:
    """Yield the facts of a study that are known, each once."""
    yield from _rows_of_trials(facts)
    yield from _rows_at_once(facts)
    yield from _rows_of_setup(facts)


def _rows_of_trials(facts: Facts) -> Iterator[Row]:
    """Yield how many trials ended in each way, how many have not ended, and how long none ran."""
    for end, ended in facts.ended.items():
        if ended.trials:
            took = f", {duration(ended.mean_s)} in the mean" if ended.mean_s is not None else ""
            yield Row(f"{end} trials", f"{ended.trials}, {ended.share:.0%}{took}", DATABASE)
    if facts.running or facts.waiting:
        yield Row("not ended", f"{facts.running} running, {facts.waiting} waiting", DATABASE)
    gaps = f", and none for {duration(facts.empty_s)} between" if facts.empty_s >= 1.0 else ""
    yield Row("time with trials", f"{duration(facts.covered_s)}{gaps}", DATABASE)
    if facts.pauses:
        yield Row("pauses", f"{facts.pauses}, {duration(facts.paused_s)}, far longer than the usual gap", DATABASE)


def _rows_at_once(facts: Facts) -> Iterator[Row]:
    """Yield how many trials ran at once, and how many of these trained; others were still starting."""
    running, training, n_jobs = facts.running_at_once, facts.training_at_once, facts.setup.n_jobs
    if running and running.most == 1:
        yield Row("trials at once", "1", DATABASE)
    elif running:
        yield Row("time of all trials", duration(facts.trial_s), DATABASE)
        yield Row("trials at once", _at_once(running), DATABASE)
        yield Row("  over time", " ".join(f"{mean:.1f}" for mean in running.tenths), DATABASE)
    if n_jobs:
        in_each = "one in each process" if n_jobs.value == 1 else f"{n_jobs.value} in threads of one process"
        yield Row("  they run", f"{in_each}, n_jobs={n_jobs.value}", n_jobs.source)
    if running and running.most > 1 and training:
        none = f"; none for {training.none_share:.0%} of the time"
        yield Row("of these, training", f"{_at_once(training)}{none}", DATABASE)


def _rows_of_setup(facts: Facts) -> Iterator[Row]:
    """Yield how long trials started, and what they ran with."""
    startup = facts.setup.startup_s
    if facts.startup_share is not None:
        each = f"{startup.value:.1f} s, " if startup else ""  # else each trial's record has its own
        yield Row(
            "start-up", f"{each}{facts.startup_share:.0%} of all trial time", startup.source if startup else DATABASE
        )
    for name, label, form in (
        ("data_wait", "waiting for the next batch", "{:.0%} of the training"),
        ("duty_pct", "duty of the ranks" if facts.on_cpu else "duty of the GPUs", "{:.0f}%"),
        ("gpus", "GPUs", "{}"),
        ("gpus_per_trial", "GPUs of a trial", "{}"),
        ("memory_used_gib", "GPU memory in use", "{:.1f} GiB"),
        ("gpu_memory_gib", "memory of a GPU", "{:.1f} GiB"),
        ("cores", "cores", "{}"),
        ("others_pct", "use of other programs", "{:.0f}% of the processors"),
    ):
        fact: KnownFact[float] | None = getattr(facts.setup, name)
        if fact:
            yield Row(label, form.format(fact.value), fact.source)
    if workers := facts.setup.loader_workers:
        yield Row("loader workers of a trial", workers.range_text + workers.mean_text, workers.source)


def _at_once(trials: AtOnce) -> str:
    """Return in words how many trials ran, or trained, at once."""
    middle = f"{trials.low}" if trials.low == trials.high else f"{trials.low} to {trials.high}"
    return f"{trials.mean:.1f} in the mean, mostly {middle}, at most {trials.most}"


def open_questions(facts: Facts) -> list[str]:
    """Return a sentence for each question that facts leave open, with the options that would give the missing facts.

    A fact is missing if it is unknown or a guess.
    """
    needed_facts = {
        "whether start-ups take much of the time": () if facts.startup_share is not None else ("startup_s",),
        "whether data loading has enough workers": () if facts.setup.data_wait else ("loader_workers", "cores"),
        "how many trials the GPUs have room for": () if facts.is_ours else ("memory_used_gib", "gpu_memory_gib"),
        "how much more the GPUs can do": () if facts.on_cpu else ("duty_pct",),
    }
    texts: list[str] = []
    for what, names in needed_facts.items():
        known: dict[str, KnownFact[float] | None] = {name: getattr(facts.setup, name) for name in names}
        missing = {name: fact for name, fact in known.items() if fact is None or fact.source == GUESS}
        if missing:
            options = " and ".join(OPTIONS[name] for name in missing)
            for_sure = "" if None in missing.values() else " for sure"  # a guess is known, though not for sure
            texts.append(f"{options} would tell{for_sure} {what}.")
    if (others_pct := facts.setup.others_pct) and others_pct.value >= 10.0:  # chosen
        texts.append("A search while no other program runs would tell how much faster trials start and train then.")
    return texts


def sentences(diagnosis: Diagnosis) -> Iterator[str]:
    """Yield the sentences about a diagnosis.

    First comes whether all causes are known, then each cause with its change, the largest first, and then what could
    not be judged.
    """
    missing = open_questions(diagnosis.facts)
    what = "Whether these are all causes" if diagnosis.causes else "What to change"
    if missing:
        yield f"{what} cannot be told yet: facts that decide are unknown. The last lines name them."
    elif not diagnosis.causes:
        yield "Nothing to change."
    for place, cause in enumerate(diagnosis.causes, 1):
        most = "Unknown gain" if cause.gain is None else f"At most {cause.gain:.2f} times as much training"
        yield f"Cause {place}, {cause.kind}: {cause.why}"
        yield f"  Change: {cause.change}."
        yield f"  {most}: {cause.how}."
    yield from missing
