"""`tuner optimize`: run or resume a study, by itself or with several workers."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.console import Console
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from tuner.cli import hints, options, setup
from tuner.cli.case_tables import front_tables, print_tables, summary_table
from tuner.cli.report import report_at_the_end, whereabouts
from tuner.cli.screen import JsonScreen, Screen
from tuner.cli.slurm import submit_workers
from tuner.cli.status import open_reader
from tuner.cli.work import EXIT_INTERRUPTED, Cases, exit_by_outcomes, job_on_console
from tuner.cli.worker import Replay, Trials, devices_of_workers, run_team
from tuner.drafting.making import Wanted
from tuner.drafting.writing import yaml
from tuner.errors import StudyError, TunerError
from tuner.export import CaseSummary, export_study, failed_lines, prepare_results, relative_to_cwd, write_files
from tuner.optimizing import Result, Search, open_search, result_of
from tuner.probe import ITERATIONS_PER_S, SAMPLES_PER_S, MonotonicClock
from tuner.records.urls import STUDY_FILE, database_url
from tuner.running.events import StudyEnded, out_of_time
from tuner.running.loop import Budget
from tuner.study import StudySpec, complaints, globs_of, is_fallback_of, load, select
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
    cases: Cases = None,
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

    def show_all() -> list[CaseSummary]:
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
    with job_on_console(console, ready.bench, ready.cases, url, ready.prober, show=show, screen=screen) as job:
        outcomes = ready.run(job, budget, n_trials)
        interrupted = job.interrupted()
    # what it has come to
    if text := out_of_time(budget) if budget.is_over() else hints.stopped(outcomes, interrupted=interrupted):
        tables.print(text)
    if not outcomes:
        raise typer.Exit(EXIT_INTERRUPTED if interrupted else 0)
    rows = show_all()
    if line := hints.progress_of_cases(ready.cases, outcomes):
        console.print(line)
    if cost := ready.simulated_cost():
        console.print(cost)
    exit_by_outcomes(outcomes, rows, interrupted=interrupted)


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
    prepare_results(runs.resolve())
    text = yaml(changed.model_dump(mode="json", exclude_unset=True))
    console.print(f"{study} with other values is a study of its own: {changed.name}; see `--study {changed.name}`")
    content = f"# {study} with other values, as `tuner optimize` was asked for.\n{text}\n".encode()
    return str(relative_to_cwd(write_files(runs.resolve() / changed.name, {STUDY_FILE: content})[0]))


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
) -> list[CaseSummary]:
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
        for line in failed_lines(reader.cases, bench.folder):
            console.print(line)
    written = export_study(url, bench.spec.name, bench.folder, ready.cases)
    console.print(whereabouts(report_at_the_end(console, url, bench, command=command), written))
    if screen:
        to_copy = None
        with suppress(TunerError, OSError):  # of files that the line to copy needs; what was measured is said anyway
            to_copy = result().command if result else None
        screen.show(StudyEnded(study=bench.spec.name, cases=tuple(map(options.plain, rows)), command=to_copy))
    return rows


def changed_study(
    spec: StudySpec, settings: Sequence[str], max_seconds: float | None, cases: Sequence[str] = ()
) -> StudySpec:
    """Return a copy of a study with other values of some parameters, another limit of a probe, and a name of its own.

    The values hold for all cases and devices, so the copy has no overrides of them. The name is made from the changes,
    so that a second call with the same options continues the same study.

    Args:
        spec: the study.
        settings: texts such as `num_envs=44,40,39`; a ladder gets these rungs, and any other parameter these choices.
        max_seconds: the longest probe after its start, in seconds; None for the study's own limit.
        cases: globs of the cases of the copy; empty for the study's own. They do not change the name.

    Raises:
        StudyError: for a parameter that the study does not search, and for values that it cannot have.
    """
    raw = spec.model_dump(mode="json", exclude_unset=True)
    changes: list[str] = []  # in words, for the name
    for text in settings:
        name, equals, values = text.partition("=")
        if name not in spec.space:
            raise StudyError(f"--set {text}: {spec.name} does not search {name}; it searches {', '.join(spec.space)}")
        raw["space"][name] = _changed_parameter(spec, name, values if equals else "", text)
        _remove_from_overrides(raw, "space", name)
        changes += [value.strip() for value in values.split(",")]
    if max_seconds is not None:
        raw.setdefault("probe", {})["max_seconds"] = max_seconds
        _remove_from_overrides(raw, "probe", "max_seconds")
        changes.append(f"{max_seconds:g}s")
    if cases:
        raw["cases"] = [*cases]
    for key in ("fallback", "launch"):  # their effect is in the loaded study already
        raw.pop(key, None)
    name_in_words = "-".join([spec.name, *changes])
    raw["name"] = re.sub(r"[^A-Za-z0-9_.-]", "_", name_in_words)[:100]  # the most that study files allow
    try:
        return StudySpec.model_validate(raw)
    except ValidationError as error:
        raise StudyError(f"--set: {'; '.join(complaints(error, StudySpec))}") from error


def _changed_parameter(spec: StudySpec, name: str, values: str, text: str) -> dict[str, Any]:
    """Return a parameter of a study as a file writes it, with other values and the same conditions.

    `values` is a text such as `44,40,39`, and `text` the whole option, for an error. Raises StudyError where `values`
    cannot be read, or is empty.
    """
    before = spec.space[name]
    try:
        new_values = YAML(typ="safe").load(f"[{values}]")
    except YAMLError:
        new_values = None
    if not new_values:
        raise StudyError(f"--set {text}: write NAME=VALUE,VALUE, such as num_envs=44,40,39")
    kind = "ladder" if before.ladder is not None else "choices"
    conditions = before.model_dump(mode="json", include={"when"}, exclude_unset=True)
    return {kind: new_values, **conditions}


def _remove_from_overrides(raw: Mapping[str, Any], section: str, key: str) -> None:
    """Remove a key from a section of all overrides."""
    for override in raw.get("overrides", ()):
        override.get(section, {}).pop(key, None)
