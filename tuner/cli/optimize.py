"""`tuner optimize`: run or resume a study, by itself or with a team of workers; `tuner worker` is one of them.

A worker is a process that probes on devices of its own. All workers of a study share its database.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from functools import cache, partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tuner import export
from tuner.cli import hints, options, setup, work
from tuner.cli.report import report_at_the_end, whereabouts
from tuner.cli.screen import JsonScreen, Screen, front_tables, open_screen, print_tables, summary_table
from tuner.cli.show import open_reader
from tuner.cli.slurm import submit_workers
from tuner.devices.cards import disjoint_cores, near_cores
from tuner.devices.drivers import Nvml
from tuner.devices.found import open_devices
from tuner.drafting.making import Wanted
from tuner.drafting.writing import yaml
from tuner.errors import StudyError, TunerError
from tuner.optimizing import Result, Search, open_search, result_of
from tuner.probe import ITERATIONS_PER_S, NVIDIA, SAMPLES_PER_S, MonotonicClock
from tuner.records.urls import STUDY_FILE, database_url
from tuner.running.events import StudyEnded, from_json, out_of_time
from tuner.running.job import Budget
from tuner.running.workers import Exit, Line, WorkerPlan, WorkerTeam, device_groups
from tuner.store.database import Database
from tuner.study import changed_study, globs_of, is_fallback_of, load, select
from tuner.trainers.registry import open_trainer

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors, the final table and the line to copy.")]
JsonLines = Annotated[
    bool, typer.Option("--json", help="Print each event as a line of JSON for scripts; other text goes to stderr.")
]
Workers = Annotated[int | None, typer.Option(min=1, help="Probes side by side, each on GPUs of its own.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="NAME=VALUE,VALUE: other values of a parameter, in a new study; repeat for more."),
]
MaxSeconds = Annotated[
    float | None, options.number_option("--max-seconds", 1, "Longest probe after its start, in a new study.")
]
PerTrial = Annotated[
    int | None, typer.Option("--gpus-per-trial", min=1, help="GPUs per probe; alone, as many workers as fit.")
]
Trials = Annotated[
    int | None, typer.Option("--n-trials", min=1, help="Finished trials per case; default: the study's.")
]
Replay = Annotated[
    Path | None, typer.Option(dir_okay=False, help="Probe a table of `tuner record` (.parquet), in simulated time.")
]


def optimize(
    command: setup.Command = None,
    search: setup.Searches = None,
    launch: setup.Launch = None,
    free_batch: setup.FreeBatch = False,
    free_precision: setup.FreePrecision = False,
    yes: setup.Yes = False,
    name: setup.Name = None,
    python: setup.Python = None,
    seconds: setup.Seconds = 60.0,
    force: setup.Force = False,
    study: Annotated[str | None, options.STUDY] = None,
    cases: work.Cases = None,
    settings: Set = None,
    max_seconds: MaxSeconds = None,
    n_trials: Trials = None,
    devices: options.Devices = None,
    workers: Workers = None,
    gpus_per_trial: PerTrial = None,
    launcher: options.Launcher = "local",
    hours: options.Hours = None,
    replay: Replay = None,
    storage: options.Storage = None,
    runs: options.Runs = options.RUNS,
    quiet: Quiet = False,
    as_json: JsonLines = False,
) -> None:
    """Make a command faster, or run a study; rerun to resume.

    Example: tuner optimize -- python train.py --batch-size 32
    """
    # the study: named, or made of the command; with other values where they are asked for
    wanted = Wanted.of(locals())
    console = options.open_console(quiet=quiet, stderr=as_json)
    is_changed = bool(settings) or max_seconds is not None
    study = _study_to_search(console, command, study, wanted, is_changed=is_changed, launcher=launcher)
    study = _changed_study_file(console, study, settings or [], max_seconds, cases or [], runs)
    devices = None if command else devices  # the study has those that the command has really used
    # the options of each worker, also in a job of SLURM
    passed_on = {"study": study, "cases": cases, "n-trials": n_trials, "hours": hours, "replay": replay, "runs": runs}
    if launcher == "slurm":
        of_worker = {**passed_on, "devices": devices}
        submit_workers(options.open_console(), study, storage, runs, count=workers or 1, options=of_worker)
        return
    # the search: opened on the devices of the first worker, where there are several
    budget = Budget(MonotonicClock(), hours)
    screen = JsonScreen() if as_json else None
    groups = devices_of_workers(study, devices, replay=replay, workers=workers, per_trial=gpus_per_trial)
    own_devices = groups[0] if groups else devices
    ready = open_search(study, cases=cases, devices=own_devices, replay=replay, runs=runs, say=console.print)
    url = database_url(None if ready.simulated else storage, ready.bench.folder)
    spec = ready.bench.spec
    searched = spec.name if is_fallback_of(spec, study) else study  # `study` may be a file
    print_best = None if ready.simulated else hints.command_of_best(searched, storage=storage, runs=runs)
    tables = options.open_console() if quiet and not as_json else console
    result = cache(partial(result_of, ready, url, (), command or ()))  # for screen and person alike
    show = partial(_show_study, console, tables, screen, ready, url, print_best, result if command else None)

    def show_all() -> list[export.CaseSummary]:
        """Return the summary of the study after showing it, what was found for a typed command, and how to train."""
        rows = show()
        if command:
            _show_outcome(tables, ready, result(), storage=storage, runs=runs)
        elif not ready.simulated and any(row.best for row in rows):
            line = hints.line_about_script(searched, devices=own_devices, storage=storage, runs=runs, requested=study)
            console.print(line)
        return rows

    if len(groups) > 1:
        run_team(console, ready, url, groups, screen=screen, passed_on=passed_on, show=show_all)
        return
    with work.job_on_console(console, ready.bench, ready.cases, url, ready.prober, show=show, screen=screen) as job:
        outcomes = ready.run(job, budget, n_trials)
        interrupted = job.interrupted()
    # what it has come to
    if text := out_of_time(budget) if budget.is_over() else hints.stopped(outcomes, interrupted=interrupted):
        tables.print(text)
    if not outcomes:
        raise typer.Exit(work.EXIT_INTERRUPTED if interrupted else 0)
    rows = show_all()
    if line := hints.progress_of_cases(ready.cases, outcomes):
        console.print(line)
    if cost := ready.simulated_cost():
        console.print(cost)
    work.exit_by_outcomes(outcomes, rows, interrupted=interrupted)


def _study_to_search(
    console: Console, command: list[str] | None, study: str | None, wanted: Wanted, *, is_changed: bool, launcher: str
) -> str:
    """Return the name or file of the study to search: the one that is named, or one that is made from the command.

    `wanted` are the options about a command; `is_changed`: whether an option changes a named study. Raises StudyError
    for both a command and a study, for neither, and for options that belong to the other one.
    """
    if bool(command) == bool(study):  # both or neither
        raise StudyError("name a command, as in `tuner optimize -- python train.py --batch-size 32`, or a --study")
    also_for_study = Wanted(devices=wanted.devices, runs=wanted.runs, yes=wanted.yes)
    if study and wanted != also_for_study:
        raise StudyError("--name, --search, --python, … belong to a command; the file of a --study says them")
    if command and is_changed:
        raise StudyError("--set and --max-seconds change a --study; `--search FLAG=VALUE,VALUE` is for a command")
    if command and launcher == "slurm":  # a command is watched here first, and a login node is no place for it
        raise StudyError(
            "--launcher slurm takes a --study: make it in a job, as in `srun --gpus 8 tuner init -- COMMAND`, or run "
            "`tuner optimize -- COMMAND` inside an allocation"
        )
    study = study or setup.study_of_command(console, command or [], wanted, to_search=True)
    if command and (objective := load(study).objective) != SAMPLES_PER_S:
        if objective == ITERATIONS_PER_S:
            what = "iterations/s are compared, because no searched value changes an iteration"
        else:
            what = "the search looks for busy devices, and there will be no line to copy"
        console.print(f"samples are not counted; {what}")
    return study


def _changed_study_file(
    console: Console, study: str, settings: list[str], max_seconds: float | None, cases: list[str], runs: Path
) -> str:
    """Return the study to search: `study` itself, or with `--set` or `--max-seconds` the file of a changed copy.

    The file is written into `runs`. It contains the `cases` of the command line, so that a later call that names only
    the file searches the same cases.
    """
    if not settings and max_seconds is None:
        return study
    globs = globs_of(cases)
    changed = changed_study(load(study), settings, max_seconds, globs)
    if globs:  # called for its StudyError, before the file is written: names that match nothing would make it useless
        select(open_trainer(changed.trainer).cases(), globs)
    export.prepare_results(runs.resolve())
    text = yaml(changed.model_dump(mode="json", exclude_unset=True))
    console.print(f"{study} with other values is a study of its own: {changed.name}; see `--study {changed.name}`")
    content = f"# {study} with other values, as `tuner optimize` was asked for.\n{text}\n".encode()
    return str(export.relative_to_cwd(export.write_files(runs.resolve() / changed.name, {STUDY_FILE: content})[0]))


def _show_outcome(tables: Console, ready: Search, result: Result, *, storage: str | None, runs: Path) -> None:
    """Print what was found for a typed command: its lines, what to search next, and the command line to copy."""
    rows = result.study.rows
    for line in result.lines or hints.lines_at_end(ready.bench, ready.cases, rows):
        tables.print(line)
    if rows and (more := hints.command_for_larger(ready.bench, rows[0], storage=storage, runs=runs)):
        tables.print(more)
    if result.command:
        tables.print(hints.heading_of_command(rows[0]))
        options.print_to_copy(result.command, tables)


def _show_study(
    console: Console,
    tables: Console,
    screen: Screen | None,
    ready: Search,
    url: str,
    command: list[str] | None,
    result: Callable[[], Result] | None,
) -> list[export.CaseSummary]:
    """Return the summary of the study, a row per case, after printing it, writing its tables and its report.

    Args:
        console: where lines appear; a quiet command prints none there.
        tables: where tables appear, also those of a quiet command.
        screen: gets the end of the study as an event; None for none.
        ready: the study that was searched.
        url: the URL of its database.
        command: the words of the command that prints the best configs as scripts; None after a replay.
        result: returns the result of a typed command, whose gain `_show_outcome` prints; None for a named study.
    """
    bench = ready.bench
    reader = open_reader(url, bench.spec.name)
    rows = reader.rows
    print_tables(tables, *([] if result else [summary_table(rows)]), *front_tables(reader))
    if not result:
        for line in hints.lines_at_end(bench, ready.cases, rows):
            console.print(line)
        for line in export.failed_lines(reader.cases, bench.folder):
            console.print(line)
    written = export.export_study(url, bench.spec.name, bench.folder, ready.cases)
    console.print(whereabouts(report_at_the_end(console, url, bench, command=command), written))
    if screen:
        to_copy = None
        with suppress(TunerError, OSError):  # of files that the line to copy needs; what was measured is said anyway
            to_copy = result().command if result else None
        screen.show(StudyEnded(study=bench.spec.name, cases=tuple(map(options.plain, rows)), command=to_copy))
    return rows


def devices_of_workers(
    study: str, devices: str | None, *, replay: Path | None, workers: int | None, per_trial: int | None
) -> list[str]:
    """Return the devices of each worker, as `--devices` names them; empty for a command that asks for no workers.

    Args:
        study: the study.
        devices: the devices that the command names; None for the study's.
        replay: a recorded table in place of devices; then each worker's devices are an empty text.
        workers: the number of workers; None beside `per_trial` for as many as the cards allow.
        per_trial: the cards of each worker; None for those that the study wants.

    Raises:
        StudyError: where the study cannot be used, or there are too few cards.
        DeviceError: where a card cannot be used.
    """
    if workers is None and per_trial is None:
        return []
    if replay:
        return [""] * (workers or 1)
    devices = load(study).devices_for(devices)
    cards_per_worker = ""
    if devices.startswith("auto"):  # `auto:2` wants two cards for each worker; the workers share all cards
        devices, _, cards_per_worker = devices.partition(":")
    cards = sum(device.is_gpu for device in open_devices(devices).devices)
    if cards_per_worker and cards and per_trial is None:
        per_trial = min(int(cards_per_worker), cards)
    return device_groups(devices, cards, workers=workers, per_trial=per_trial)


def run_team(
    console: Console,
    search: Search,
    url: str,
    groups: Sequence[str],
    *,
    screen: Screen | None,
    passed_on: Mapping[str, object],
    show: Callable[[], list[export.CaseSummary]],
) -> None:
    """Run one worker for each group of devices until all have ended; then show the study and end the command.

    Args:
        console: where lines appear.
        search: the study.
        url: the URL of its database.
        groups: the devices of each worker.
        screen: shows what the workers do; None for the console.
        passed_on: the options of each worker.
        show: shows the results of the study, and returns a summary of each case.

    Raises:
        TunerError: with the errors of workers that the user can fix.
    """
    bench = search.bench
    export.prepare_study(bench.folder)
    with closing(Database(url)):  # makes the schema, before several workers ask for it
        hints.introduction(console, bench, search.cases, url, workers=len(groups))
    search.prober.close()  # each worker has its own
    plans = _worker_plans(url, groups, passed_on, pin=bench.kind == "gpu" and not search.simulated)
    screen = screen or open_screen(console)
    view = _TeamView(screen)
    with work.interruptible(console) as interrupted:
        team = WorkerTeam(plans)
        try:
            team.run(view.show, view.ended, interrupted.is_set)
        finally:
            screen.close()
            team.close()
    rows = [row for row in show() if row.case in {case.name for case in search.cases}]
    if interrupted.is_set():
        console.print("stopped early; rerun to resume")
        raise typer.Exit(work.EXIT_INTERRUPTED)
    if view.complaints:
        raise TunerError("\n".join(view.complaints))
    if not any(row.best for row in rows):
        raise typer.Exit(work.EXIT_WITHOUT_BEST)


def _worker_plans(url: str, groups: Sequence[str], passed_on: Mapping[str, object], *, pin: bool) -> list[WorkerPlan]:
    """Return how to start a worker for each group of devices; with `pin`, each on the CPU cores near its cards.

    `--led` makes a worker end together with this process.
    """
    cores_of_groups = _cores(groups) if pin else [[] for _ in groups]
    plans: list[WorkerPlan] = []
    for number, (group, cores) in enumerate(zip(groups, cores_of_groups, strict=True), start=1):
        name = f"worker {number} ({group})" if group else f"worker {number}"
        words = options.as_words({**passed_on, "devices": group, "cores": ",".join(map(str, cores))})
        argv = [sys.executable, "-P", "-m", "tuner", "worker", "--led", *words]  # -P: no file here replaces a module
        plans.append(WorkerPlan(name=name, argv=argv, env={options.STORAGE_VARIABLE: url}))
    return plans


def _cores(groups: Sequence[str]) -> list[list[int]]:
    """Return the CPU cores of each worker, near its cards. Raises DeviceError when a card does not answer.

    Only NVML says which cores are near. So no worker gets cores of its own where one of them has no NVIDIA card.
    """
    open_groups = [open_devices(group).devices for group in groups]
    uuids_of_groups = [[card.uuid for card in group if card.uuid and card.maker == NVIDIA] for group in open_groups]
    if not all(uuids_of_groups):
        return [[] for _ in groups]
    nvml = Nvml()
    return disjoint_cores([near_cores(nvml, uuids) for uuids in uuids_of_groups], os.sched_getaffinity(0))


class _TeamView:
    """Shows the events of all workers on one screen, and says how workers end."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._errors: dict[str, list[str]] = {}
        """Worker → the lines of error that it has written."""
        self.complaints: list[str] = []
        """The errors of workers that the user can fix, each text once."""

    def show(self, worker: str, line: Line) -> None:
        """Show what a worker has written."""
        if event := from_json(line):
            self._screen.show(event, worker)
        elif text := line.get("complaint"):
            self._errors.setdefault(worker, []).append(text)

    def ended(self, worker: str, end: Exit) -> None:
        """Print how a worker died; add an error that the user can fix (exit code 2) to `complaints`."""
        self._screen.remove_probe(worker)
        errors = "\n".join(self._errors.pop(worker, []))
        if end.died:  # by a signal, or by an error of tuner itself
            how = f"was ended by signal {-end.code}" if end.code < 0 else f"ended with code {end.code}"
            then = "it is started again and repeats its trial" if end.is_restarted else "the next run repeats its trial"
            self._screen.say(f"{worker} {how}; {then}", style="red")
            if errors:
                self._screen.say(errors)
        elif end.code == 2 and (text := errors.removeprefix("tuner: ")) not in self.complaints:
            self.complaints.append(text)


Cores = Annotated[str | None, typer.Option(help="CPU cores for this worker and its probes, such as 0,1,2.")]
Led = Annotated[
    bool,
    typer.Option("--led", hidden=True, help="Write progress as JSON lines, and end when the standard input closes."),
]


def worker(
    study: options.Study,
    cases: work.Cases = None,
    n_trials: Trials = None,
    devices: options.Devices = None,
    hours: options.Hours = None,
    replay: Replay = None,
    storage: options.Storage = None,
    runs: options.Runs = options.RUNS,
    cores: Cores = None,
    led: Led = False,
) -> None:
    """Probe for a study that several workers share; start one for each set of cards, on any number of hosts.

    Example: tuner worker --study train --devices 2,3
    """
    if cores:
        os.sched_setaffinity(0, _core_numbers(cores))
    budget = Budget(MonotonicClock(), hours)
    console = options.open_console(quiet=led)  # a leading `tuner optimize --workers` reads JSON lines in place of text
    screen = JsonScreen() if led else None
    search = open_search(study, cases=cases, devices=devices, replay=replay, runs=runs, say=console.print)
    url = database_url(None if search.simulated else storage, search.bench.folder)
    with work.job_on_console(console, search.bench, search.cases, url, search.prober, screen=screen, led=led) as job:
        outcomes = search.run(job, budget, n_trials)
        interrupted = job.interrupted()
    if budget.is_over():
        console.print(out_of_time(budget))
    work.exit_by_outcomes(outcomes, interrupted=interrupted)


def _core_numbers(cores: str) -> set[int]:
    """Return the cores of an option. Raises typer.BadParameter where this process may not use one of them."""
    allowed = os.sched_getaffinity(0)
    try:
        numbers = {int(word) for word in cores.split(",")}
    except ValueError:
        numbers = set[int]()
    if not numbers or not numbers <= allowed:
        raise typer.BadParameter(f"{cores!r} is no list of cores of this machine, such as 0,1,2", param_hint="--cores")
    return numbers
