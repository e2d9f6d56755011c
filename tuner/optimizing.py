"""`tuner.optimize` makes a command faster or runs a study, and returns what was found; the command line uses it."""

import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tuner import export
from tuner.devices.cpu import COUNTERS
from tuner.devices.found import spare_cards
from tuner.drafting.making import Wanted, make_study
from tuner.drafting.outcome import CommandOutcome, outcome_of
from tuner.errors import EmptyStoreError, StudyError, for_python, option
from tuner.export.recorded_table import Table
from tuner.export.tables import all_trials
from tuner.probe import SAMPLES_PER_JOULE, DeviceSource, MonotonicClock, Prober, number_of
from tuner.records.urls import database_url
from tuner.replay import ReplayedProber, replay_bench
from tuner.running.events import CaseOutcome, Ending, Event, EventLines, Listener, out_of_time
from tuner.running.job import Budget, Job, Workbench, cases_to_search, open_job, open_workbench, within_budget
from tuner.running.kept_file import keep_study_file
from tuner.running.loop import optimize as work_on
from tuner.running.prober import open_prober
from tuner.study import Case, Config, StudySpec, Value, key_warnings, value_text

if TYPE_CHECKING:
    import pandas as pd


class Search(NamedTuple):
    """A study that is ready to be searched: its workbench, what runs its probes, and the cases to search."""

    bench: Workbench
    prober: Prober
    cases: Sequence[Case]

    @property
    def simulated(self) -> bool:
        """Whether a recorded table stands in for trainer and devices."""
        return isinstance(self.prober, ReplayedProber)

    def simulated_cost(self) -> str | None:
        """Return in words how long the probes of a replay would have used real devices; None on real devices."""
        if not isinstance(self.prober, ReplayedProber):
            return None
        return f"simulated: {export.in_use(self.prober.spent_s, len(self.bench.devices))}"

    def run(self, job: Job, budget: Budget, trials: int | None) -> list[CaseOutcome]:
        """Search each case until the budget or the number of finished trials is used up; return how each came out.

        The search ends only when the last probes of other workers have ended, too: they may show another best config.
        """
        return work_on(
            waiting_for_workers(within_budget(replace(job, simulated=self.simulated, trials=trials), budget)),
            self.cases,
        )


def waiting_for_workers(job: Job) -> Job:
    """Return a job that waits, second by second, until the last probes of other workers have ended."""
    return replace(job, wait=partial(time.sleep, 1.0))


def open_search(
    study: str,
    *,
    cases: Sequence[str] | None = None,
    devices: str | None = None,
    replay: Path | None = None,
    runs: Path,
    say: Callable[[str], None] = lambda _: None,
) -> Search:
    """Return a study that is ready to be searched, on its devices or on the table `replay`.

    `cases` and `devices` replace those of the study, `runs` is the folder of all results, and `say` shows a line.
    Raises StudyError, TrainerError or DeviceError where the study, a case or a device cannot be used.
    """
    if replay is None:
        bench = open_workbench(study, devices=devices, runs=runs)
        check_energy(bench.spec, bench.source)
        if spare := spare_cards(bench.spec.devices_for(devices)):
            wanted = len(bench.devices)
            workers = 1 + spare // wanted
            hint = f"; `tuner optimize --workers {workers}` searches on them, too" if workers > 1 else ""
            say(f"the study wants {number_of(wanted, 'card')}, so {spare} more stay free{hint}")
        prober = open_prober(bench, say)
    elif cases or devices:
        left_out = f"leave out {option('cases')} and {option('devices')}"
        raise StudyError(f"{option('replay')} takes case and devices from its table; {left_out}")
    else:
        table = Table.load(replay)
        bench = replay_bench(table, study, runs=runs)
        prober = ReplayedProber(table, *bench.spec.objectives)
        say(replaying(table, replay))
    return Search(bench=bench, prober=prober, cases=cases_to_search(bench, cases))


def check_energy(spec: StudySpec, source: DeviceSource) -> None:
    """Raise StudyError where a study needs the energy of devices that show none, before anything is measured."""
    needed = {*spec.needed} & {"energy_j", SAMPLES_PER_JOULE, "joules_per_sample"}
    samples = source.sample(0.0) if needed else ()
    # energy is also computed from samples of power
    if lacking := [sample for sample in samples if sample.energy_j is None and sample.power_w is None]:
        device = source.devices[lacking[0].device]
        why = "it shows neither energy nor power" if device.is_gpu else f"{COUNTERS} has no counter that you may read"
        raise StudyError(
            f"{', '.join(sorted(needed))} needs the energy of {device.name} ({device.model}): {why}; "
            "leave it out of `objective` and `constraints`"
        )


def replaying(table: Table, path: Path) -> str:
    """Return a line that says which recorded table a replay uses, and what it takes from the table and the study."""
    header = table.header
    machine = header.machine.get("gpus") or header.machine.get("cpu")
    return (
        f"replaying {path}: {number_of(len(table.configs), 'config')} of {header.case}, "
        f"recorded on {machine} by {header.date}; "
        "space and devices come from the table; search, pruner, objective, constraints and limits come from the study"
    )


class SpeedGain(NamedTuple):
    """How many times as fast a config is."""

    times: float
    error: float | None
    """The standard error of `times`; None where it is unknown."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Result:
    """What a search has found. Its properties are about the study's first case; `study.cases` has all."""

    study: export.StudyReader
    outcomes: tuple[CaseOutcome, ...]
    """How the search of each case ended: its `ending`, and `why` no further probe pays."""
    lines: tuple[str, ...] = ()
    """EventLines for a person: what stopped the search, what was found for a command, and how many configs failed."""
    stopped: str | None = None
    """What stopped the search early, such as `hours`; None where it ended by itself or by its number of trials."""
    command: str | None = None
    """The command line with the best config's values, in shell quoting; None where nothing is faster."""

    def __repr__(self) -> str:
        times = self.gain and f"{export.with_error(self.gain.times, self.gain.error, 2)} times"
        shown = {"best": self.best, "gain": times, "command": self.command, "stopped": self.stopped}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    @property
    def best(self) -> Config | None:
        """The best config; None where no config may be the best."""
        best = self.study.cases[0].best if self.study.cases else None
        return best.config if best else None

    @property
    def gain(self) -> SpeedGain | None:
        """How many times as fast as the own command, or as a study's default, the best is; None where it is unknown.

        It is that of the whole training where the time of the pauses of both is known, such as evaluations. Otherwise
        it is that of the steps alone.
        """
        of_best = self.study.rows[0].gain if self.study.cases else None
        if of_best is None or of_best.times is None:  # without speeds, only the objective is compared
            return None
        return SpeedGain(of_best.times, of_best.error)

    def trials(self) -> "pd.DataFrame":
        """Return a row per trial, with the columns of `trials.tsv`."""
        import pandas as pd  # noqa: PLC0415 - takes half a second, which a search does not need

        sheet = all_trials(self.study)
        return pd.DataFrame(list(sheet.rows), columns=list(sheet.columns))


def _check_limits(trials: int | None, hours: float | None) -> None:
    """Raise StudyError for a number of trials or hours that would end a search before it begins."""
    for name, given, least in (("trials", trials, 1), ("hours", hours, 0)):
        if given is not None and not given >= least:
            raise StudyError(f"{name} is {given}; give at least {least}")


@for_python()
def optimize(
    command: Sequence[str] | str = (),
    *,
    study: str | None = None,
    search: Mapping[str, Sequence[Value] | str] | None = None,
    name: str | None = None,
    free_batch: bool = False,
    free_precision: bool = False,
    force: bool = False,
    cases: Sequence[str] | None = None,
    trials: int | None = None,
    hours: float | None = None,
    devices: str | None = None,
    replay: Path | str | None = None,
    storage: str | None = None,
    runs: Path | str = "runs",
    say: Callable[[str], None] = print,
    listener: Listener = lambda _: None,
) -> Result:
    """Return what a search has found: of a command, which becomes a study, or of a study. A second call resumes it.

    The database and the tables of the study are in its folder below `runs`.

    Args:
        command: the words of a training command, such as `["python", "train.py", "--batch-size", "32"]`, or its line.
        study: instead of a command, the name of a study in `studies/`, or the path to a study file.
        search: a flag → its values, such as `{"num_workers": [0, 2, 4]}`, or a text such as `"256..65536"`; None for
            those that are worth a search.
        name: the name of the command's study; None for that of its script.
        free_batch: whether batch and environments may grow, which changes what is learnt.
        free_precision: whether the precision may vary, which may change what is learnt.
        force: whether the command's study file is made anew where there is one.
        cases: globs of cases; None for the study's.
        trials: the finished trials of each case; None for the study's number.
        hours: the longest time, in hours; None for no limit.
        devices: `auto`, `cpu:RANKS` or CUDA indices; None for those of the study or of the command.
        replay: a table of `tuner record` that is probed in simulated time, instead of a trainer.
        storage: the SQLAlchemy URL of the database; None for a file in `runs`.
        runs: the folder of the databases, probes and exports of all studies.
        say: shows a line of text, also for each trial.
        listener: gets every event of `tuner.running.events`.

    Raises:
        StudyError: where both or neither of command and study are given, the study or a limit cannot be used, or the
            command's study was made with another `search`.
        TrainerError: where the trainer's command or files cannot be used.
        DeviceError: where devices cannot be used.
        StoreError: where the database cannot be used.
        OutputError: where a file cannot be written.
        KeyboardInterrupt: after Ctrl-C, once the probe has ended; all earlier results are kept.
    """
    if isinstance(command, str):
        command = _words(command)
    if bool(command) == bool(study):
        raise StudyError("name either a command or a study")
    _check_limits(trials, hours)
    if study and (search or name or free_batch or free_precision or force):
        raise StudyError(
            "a study has its own space; search, name, free_batch, free_precision and force are for a command"
        )
    runs = Path(runs)
    if command:
        wanted = Wanted(
            search=_search_options(search) or None,
            name=name,
            devices=devices,
            free_batch=free_batch,
            free_precision=free_precision,
            yes=True,
            force=force,
            runs=runs,
        )
        study = make_study(command, wanted, say, warn=say, to_search=True)
        devices = None  # the study file has them now
    table = Path(replay) if replay else None
    ready = open_search(str(study), cases=cases, devices=devices, replay=table, runs=runs, say=say)
    for line in key_warnings(ready.bench.spec):
        say(line)
    export.prepare_study(ready.bench.folder)
    url = database_url(None if ready.simulated else storage, ready.bench.folder)
    lines, budget = EventLines(), Budget(MonotonicClock(), hours)

    def listen(event: Event) -> None:
        """Tell an event: as a line, where it has one, and to the caller's listener."""
        if line := lines.line_of(event):
            say(line.text)
        listener(event)

    with open_job(ready.bench, url, ready.prober, listener=listen) as job:
        keep_study_file(ready.bench)
        listen(ready.bench.started(ready.cases))
        outcomes = ready.run(job, budget, trials)
    try:
        export.export_study(url, ready.bench.spec.name, ready.bench.folder, ready.cases)
    except EmptyStoreError:
        if outcomes:
            raise
        raise StudyError(out_of_time(budget)) from None  # no case has begun
    result = result_of(ready, url, outcomes, command)
    stopped = _stopped(ready.cases, outcomes, budget)
    return replace(result, stopped=stopped, lines=(*([stopped] if stopped else []), *result.lines))


def _words(line: str) -> list[str]:
    """Return the words of a command line. Raises StudyError for a quote that is not closed."""
    try:
        return shlex.split(line)
    except ValueError as error:
        raise StudyError(f"command {line!r}: {error}; close the quote, or give a list of words") from error


def _search_options(search: Mapping[str, Sequence[Value] | str] | None) -> list[str]:
    """Return the flags and their values as the options `--search` list them. Raises StudyError for no dictionary."""
    if not isinstance(search, Mapping | None):
        raise StudyError(f'search is {search!r}; give a dictionary, as in {{"num_workers": [0, 2, 4]}}')
    return [f"{flag}={_listed(flag, values)}" for flag, values in (search or {}).items()]


def _listed(flag: str, values: Sequence[Value] | str) -> str:
    """Return the values of a flag as the option `--search` lists them. Raises StudyError for a single number.

    A text has this form already.
    """
    if isinstance(values, str):
        return values
    if not isinstance(values, Iterable):
        raise StudyError(f"search: {flag} has the single value {values!r}; list its values, as in [{values!r}]")
    return ",".join(map(value_text, values))


def _stopped(cases: Sequence[Case], outcomes: Sequence[CaseOutcome], budget: Budget) -> str | None:
    """Return in words what stopped a search early; None where each case ended by itself or by its number of trials."""
    is_cut = len(outcomes) < len(cases) or any(outcome.ending is Ending.INTERRUPTED for outcome in outcomes)
    if is_cut and budget.is_over():
        return out_of_time(budget)
    stops: list[tuple[str, str]] = []
    for outcome in outcomes:
        if outcome.stopped:
            cause = outcome.failure.detail if outcome.failure else outcome.why
            stops.append((outcome.case.name, f"{outcome.ending}: {cause}" if cause else str(outcome.ending)))
    return "; ".join(export.merged_lines(stops)) or None


def result_of(ready: Search, url: str, outcomes: Sequence[CaseOutcome], command: Sequence[str] = ()) -> Result:
    """Return the result of a search that has ended.

    `command` are the words of the typed command from which the study was made; empty for any other study.
    """
    study = export.StudyReader(export.connect(url), ready.bench.spec.name)
    if command and study.cases:  # a command has one case
        for_command = outcome_of(ready.bench, study.cases[0], command)
    else:
        for_command = CommandOutcome(tuple(export.failed_lines(study.cases, ready.bench.folder)))
    return Result(study=study, outcomes=tuple(outcomes), lines=for_command.lines, command=for_command.command)
