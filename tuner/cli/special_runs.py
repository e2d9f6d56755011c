"""Commands that probe for another purpose than a search: chosen configs, or a training that has run already.

- `tuner record` measures a whole space and writes tables; `tuner recover` finds a config that runs for each case.
- `tuner soak` runs the best config for minutes, in a way that provokes what needs most memory, to say whether memory
  lasts for hours; `tuner failed` says that it did not.
- `tuner race` says which configs learn most, and `tuner verify` whether the best is as fast as before.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from tuner import export
from tuner.cli import options, work
from tuner.cli.screen import print_tables, summary_table
from tuner.cli.show import open_reader
from tuner.errors import EmptyStoreError, StoreError
from tuner.export.recorded_table import Table as RecordedTable
from tuner.export.recorded_table import export_tables
from tuner.optimizing import waiting_for_workers
from tuner.probe import HOUR_S, MonotonicClock, number_of
from tuner.records.urls import database_url
from tuner.running.events import out_of_time
from tuner.running.job import RECOVER, Budget, Workbench, chosen_cases, open_workbench, within_budget
from tuner.running.loop import optimize, plan_recording, record_cases, recording_bench
from tuner.running.prober import prober_on
from tuner.store.races import RaceRuns
from tuner.study import MOST_HOURS, Case, Config, grouped, ladder_of, literal_word
from tuner.tools.racing import Entrant, Place, Race, Round, entrants, rounds, verdict
from tuner.tools.soaking import WholeTraining, job_of_failure, may_be_soaked, reported_failure, soak_purpose, verdicts
from tuner.tools.verifying import Verification, changed_settings, introduction, report

DATABASE = "record.db"
"""The file name of what `tuner record` measures, beside the study's own: a search and a recording never mix."""
TABLES = "tables"
"""The folder of a study's recorded tables, inside the study's own folder."""
Count = Annotated[
    int | None, typer.Option("--configs", min=1, help="Record only this many configs, spread over the space.")
]


def record(
    study: options.Study,
    count: Count = None,
    cases: work.Cases = None,
    devices: options.Devices = None,
    hours: options.Hours = None,
    storage: options.Storage = None,
    runs: options.Runs = options.RUNS,
) -> None:
    """Measure every config of a space, or a sample of it, and write tables; rerun to resume.

    Example: tuner record --study demo --devices cpu:2
    """
    budget = Budget(MonotonicClock(), hours)
    console = options.open_console()
    search_bench = open_workbench(study, devices=devices, runs=runs)
    # of the same study, but it measures each config, in a folder of its own
    bench = recording_bench(search_bench, shares_database=storage is not None)
    chosen = chosen_cases(bench, cases)
    url = database_url(storage, search_bench.folder, DATABASE)
    folder = search_bench.folder / TABLES
    export.prepare_results(search_bench.folder.parent)
    export.prepare_folder(folder)
    write = partial(export_tables, url, bench.stored_name, folder)
    with work.job_on_console(console, bench, chosen, url, show=lambda: options.print_written(console, write())) as job:
        bench = work.with_stored_rungs(bench, url)  # of an earlier call, so that no small probes are needed
        recordings = [plan_recording(bench, case, count) for case in chosen]
        recorded_cases = record_cases(replace(within_budget(job, budget), bench=bench), recordings)
        outcomes = [case.outcome for case in recorded_cases if case.outcome]
        interrupted = job.interrupted()
    if budget.is_over():
        console.print(out_of_time(budget))
    if interrupted and not outcomes:
        raise typer.Exit(work.EXIT_INTERRUPTED)
    paths: list[Path] = []
    with suppress(EmptyStoreError):  # no case has begun if no time was left
        paths = write()
    tables = {path.stem: RecordedTable.load(path) for path in paths if path.suffix == ".parquet"}
    for planned in (case.planned for case in recorded_cases):
        console.print(recording_line(planned.case, planned.configs, tables.get(planned.case.name)))
    options.print_written(console, paths)
    work.exit_by_outcomes(outcomes, interrupted=interrupted)


def recover(
    study: options.Study,
    cases: work.Cases = None,
    devices: options.Devices = None,
    storage: options.Storage = None,
    runs: options.Runs = options.RUNS,
) -> None:
    """For each case without a success, find one config that runs. Then name a num_envs that is safe for all cases.

    Example: tuner recover --study pi_plus
    """
    console = options.open_console()
    bench = open_workbench(study, devices=devices, runs=runs)
    chosen = chosen_cases(bench, cases)
    url = database_url(storage, bench.folder)
    show = partial(_show_recovered, console, bench, url)
    with work.job_on_console(console, bench, chosen, url, show=show) as job:
        outcomes = optimize(replace(job, purpose=RECOVER), chosen)
        interrupted = job.interrupted()
    if not outcomes:
        raise typer.Exit(work.EXIT_INTERRUPTED)
    work.exit_by_outcomes(outcomes, show(), interrupted=interrupted)


def _show_recovered(console: Console, bench: Workbench, url: str) -> list[export.CaseSummary]:
    """Return the summary of the study, a row per case, after showing and exporting it."""
    reader = open_reader(url, bench.spec.name)
    rows = reader.rows
    print_tables(console, summary_table(rows))
    for line in safe_rungs(reader):
        console.print(line)
    options.print_written(console, export.export_study(url, bench.spec.name, bench.folder))
    return rows


def safe_rungs(study: export.StudyReader) -> list[str]:
    """Return lines that say with which rung every case of a method is known to run, and with which one all cases.

    Groups of cases with the same rung share a line. The list is empty for a study that does not search a ladder.
    """
    ladder = export.ladder_of_study(study)
    if ladder not in study.fields.parameters:
        return []
    groups = grouped(study.cases, lambda case: case.method)
    if len(groups) > 1:
        groups["all cases"] = study.cases
    rungs = {group: export.safe_rung(cases) for group, cases in groups.items()}
    sizes = {group: f"no {ladder}" if rung is None else f"{ladder} {rung}" for group, rung in rungs.items()}
    return export.merged_lines((group, f"{size} is known to be safe for every case") for group, size in sizes.items())


def recording_line(case: Case, configs: Sequence[Config], table: RecordedTable | None) -> str:
    """Return a line that says how many of the planned `configs` of a case are recorded; `table` is None for none."""
    if table is None:
        return f"{case.name}: nothing recorded yet, {number_of(len(configs), 'config')} left"
    left = sum(table.find(config) is None for config in configs)
    return f"{case.name}: {number_of(len(table.configs), 'config')} recorded, {left} of {len(configs)} left"


SoakMinutes = Annotated[
    float,
    options.number_option("--minutes", 0.01, "The longest run of a config; less if all is known.", 60 * MOST_HOURS),
]
TrainingHours = Annotated[
    float | None,
    options.number_option("--train-hours", 0.001, "The training's length; default: the study's.", MOST_HOURS),
]
TrainingIterations = Annotated[
    int | None, options.number_option("--iterations", 1, "The training's length, in place of hours.", 10**12)
]
Changes = Annotated[
    list[str] | None, typer.Option("--set", help="NAME=VALUE, once per parameter; others are those of the best config.")
]


def soak(
    study: options.Study,
    cases: work.Cases = None,
    minutes: SoakMinutes = 15.0,
    hours: TrainingHours = None,
    iterations: TrainingIterations = None,
    settings: Changes = None,
    devices: options.Devices = None,
    storage: options.Storage = None,
    runs: options.Runs = options.RUNS,
) -> None:
    """Run the best config, or another with --set, for minutes; say whether memory lasts for hours.

    Where the memory of a config does not last, configs with smaller sizes are tried.

    Example: tuner soak --study train --minutes 10
    """
    console = options.open_console()
    options.need_own_study(study, storage, runs)
    bench = open_workbench(study, devices=devices, runs=runs)
    url = database_url(storage, bench.folder)
    chosen = chosen_cases(bench, cases)
    training = WholeTraining.of(bench, hours, iterations)
    named = None  # the config to soak; None for the best of each case
    if settings:
        named = _best_with(bench, work.one_case(bench, cases, "--set"), url, settings)
    else:
        chosen = _cases_to_soak(console, chosen, url, bench, study)
    purpose = soak_purpose(bench, minutes, training, named)
    with work.job_on_console(console, bench, chosen, url) as job:
        outcomes = optimize(replace(job, purpose=purpose), chosen)
        interrupted = job.interrupted()
    if not outcomes:
        raise typer.Exit(work.EXIT_INTERRUPTED)
    reader = open_reader(url, bench.spec.name)
    for view in reader.cases:
        for line in verdicts(view, training):
            console.print(line)
    options.print_written(console, export.export_study(url, bench.spec.name, bench.folder))
    work.exit_by_outcomes(outcomes, reader.rows, interrupted=interrupted)


def _cases_to_soak(console: Console, cases: Sequence[Case], url: str, bench: Workbench, study: str) -> list[Case]:
    """Return the cases with a config to soak, after naming those without. Raises StoreError where no case has one."""
    views = {view.name: view for view in open_reader(url, bench.spec.name).cases}
    training = WholeTraining.of(bench)
    ready = [case for case in cases if (view := views.get(case.name)) and may_be_soaked(view, training)]
    without_best = ", ".join(case.name for case in cases if case not in ready)
    instead = f"`tuner optimize --study {study}` searches first, and --set NAME=VALUE soaks a config of your choice"
    if not ready:
        raise StoreError(f"nothing was soaked: no best config yet for {without_best}; {instead}")
    if without_best:
        console.print(f"no soak for {without_best}, because there is no best config yet; {instead}")
    return ready


def _best_with(bench: Workbench, case: Case, url: str, settings: Sequence[str]) -> Config:
    """Return the best config of a case, or else the first that the study probes, changed by the settings.

    Raises StudyError for a setting outside the space.
    """
    with suppress(StoreError):  # the study has not begun
        view = open_reader(url, bench.spec.name).case(case.name)
        if view and view.best:
            return work.config_with(bench.space_for(case), view.best.config, settings)
    return work.first_config(bench, case, settings)


Oom = Annotated[bool, typer.Option("--oom", help="The training ran out of memory.")]
Log = Annotated[
    Path | None, typer.Option(exists=True, dir_okay=False, help="The output of the training, which says why it failed.")
]


def failed(
    study: options.Study,
    oom: Oom = False,
    log: Log = None,
    settings: Changes = None,
    cases: work.Cases = None,
    devices: options.Devices = None,
    storage: options.Storage = None,
    runs: options.Runs = options.RUNS,
) -> None:
    """Note that a training ran out of memory, and get the next config. Without --set, it was the best.

    Example: tuner failed --study train
    """
    console = options.open_console()
    bench = open_workbench(study, devices=devices, runs=runs)
    url = database_url(storage, bench.folder)
    case = work.one_case(bench, cases)
    failure = reported_failure(work.output_lines(log) if log else (), oom=oom, gpu=bench.kind == "gpu")
    view = open_reader(url, bench.spec.name).case(case.name)
    if not settings and (view is None or view.best is None):
        raise StoreError(export.no_best(case.name))
    config = _best_with(bench, case, url, settings or [])
    prober = prober_on(bench.source, console.print)  # nothing is started: a trial is stored with the failure
    with work.job_on_console(console, bench, [case], url, prober) as job:
        optimize(job_of_failure(job, config, failure, ladder_of(bench.space_for(case))), [case])
    after = open_reader(url, bench.spec.name).case(case.name)
    if after is None or after.best is None:
        raise StoreError(
            f"no other config of {case.name} may be the best; "
            f"`tuner optimize --study {literal_word(study)}` looks for one"
        )
    console.print(
        f"{case.name}: next, train with {export.in_words(after.best.config)}; "
        f"`tuner soak --study {literal_word(study)}` tests it first"
    )


RaceHours = Annotated[
    float,
    options.number_option("--train-hours", 0.0001, "The hours that all runs train, added up. Start-ups come on top."),
]
Trials = Annotated[
    list[int] | None, typer.Option("--trial", min=0, help="A trial whose config takes part, too; may be repeated.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the configs and the rounds, and train nothing.")]
Seeds = Annotated[int, typer.Option(min=1, help="Runs of each config in each round.")]


def race(
    study: options.Study,
    cases: work.Cases = None,
    train_hours: RaceHours = 1.0,
    seeds: Seeds = 2,
    hours: options.Hours = None,
    trials: Trials = None,
    dry_run: DryRun = False,
    devices: options.Devices = None,
    storage: options.Storage = None,
    runs: options.Runs = options.RUNS,
) -> None:
    """Train a few configs of a search for the same time, and say which learns most; rerun to resume.

    Example: tuner race --study pi_plus --train-hours 1
    """
    console = options.open_console()
    bench, chosen, url, view = work.searched_case(study, cases, "a race", devices=devices, storage=storage, runs=runs)
    configs = entrants(view, also=trials or ())
    for line in _introduction(configs, rounds(len(configs), seeds=seeds, total_s=train_hours * HOUR_S)):
        console.print(line)
    if dry_run:
        return
    work.need_same_devices(bench, view)
    budget = Budget(MonotonicClock(), hours)
    with work.job_on_console(console, bench, [chosen], url) as job:
        kept = RaceRuns(job.database, bench.study_name(chosen))
        waiting_job = waiting_for_workers(within_budget(job, budget))
        racing = Race(
            waiting_job, chosen, kept, console.print, configs=configs, seeds=seeds, total_s=train_hours * HOUR_S
        )
        places = racing.run()
        interrupted = job.interrupted()
    print_tables(console, _table(places))
    for line in verdict(places):
        console.print(line)
    if budget.is_over():
        console.print(out_of_time(budget))
        return
    if interrupted:
        console.print("interrupted; whole runs are kept; rerun to resume")
        raise typer.Exit(work.EXIT_INTERRUPTED)
    if not any(place.mean for place in places):  # no run has reported a score
        raise typer.Exit(work.EXIT_WITHOUT_BEST)


def _introduction(configs: Sequence[Entrant], rounds: Sequence[Round]) -> Iterator[str]:
    """Yield which configs take part, what all of them have in common, and how long each trains in each round."""
    for entrant in configs:
        measured = "".join(f", {name} {export.figure(value)}" for name, value in entrant.measured.items())
        yield f"{entrant.differing}: {entrant.why}{measured}"
    if shared := {name: value for name, value in configs[0].config.items() if name in configs[0].shared}:
        yield f"each config has {export.in_words(shared)}"
    for number, race_round in enumerate(rounds, start=1):
        seeds = number_of(len(race_round.seeds), "seed")
        yield f"round {number}: {race_round.configs} configs with {seeds}, {race_round.seconds:.0f} s each"


def _table(places: Sequence[Place]) -> Table:
    """Return a table of how the configs stand."""
    table = Table("why", "score", "runs", "after, s", "config", box=box.SIMPLE)
    for place in places:
        mean = place.mean  # None before its first run
        score, runs = (export.score_text(mean.value, mean.error), str(mean.runs)) if mean else ("", "0")
        table.add_row(place.entrant.why, score, runs, f"{place.seconds:.0f}", place.entrant.differing)
    return table


AtLeast = Annotated[
    float, typer.Option(min=0.01, max=1.0, help="The share of its speed in the study that the best must keep.")
]
Minutes = Annotated[float, typer.Option(min=0.01, max=600.0, help="The time for all runs; there are four at least.")]


def verify(
    study: options.Study,
    cases: work.Cases = None,
    at_least: AtLeast = 0.99,
    minutes: Minutes = 4.0,
    devices: options.Devices = None,
    storage: options.Storage = None,
    runs: options.Runs = options.RUNS,
) -> None:
    """Measure your command and the best again, in turns. Exit code 0: it holds, 1: slower, 2: unknown.

    Example: tuner verify --study train
    """
    console = options.open_console()
    options.need_own_study(study, storage, runs)
    what = "a verification"
    bench, chosen, url, view = work.searched_case(study, cases, what, devices=devices, storage=storage, runs=runs)
    work.need_same_devices(bench, view)
    with work.job_on_console(console, bench, [chosen], url) as job:
        verification = Verification(job, chosen, view, Budget(MonotonicClock(), minutes / 60.0), console.print)
        for line in changed_settings(view, bench.identity_for(chosen)):
            console.print(line)
        for line in introduction(verification.subjects, minutes, at_least):
            console.print(line)
        findings = verification.run(at_least)
    if findings is None:
        raise typer.Exit(work.EXIT_INTERRUPTED)
    for line in report(findings):
        console.print(line)
    raise typer.Exit(findings.verdict)
