"""`tuner record` measures a whole space and writes tables; `tuner recover` finds a config that runs for each case."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tuner import export
from tuner.cli import options, work
from tuner.cli.screen import print_tables, summary_table
from tuner.cli.show import open_reader
from tuner.errors import EmptyStoreError
from tuner.export.recorded_table import Table as RecordedTable
from tuner.export.recorded_table import export_tables
from tuner.probe import MonotonicClock, number_of
from tuner.records.urls import database_url
from tuner.running.events import out_of_time
from tuner.running.job import RECOVER, Budget, Workbench, chosen_cases, open_workbench, within_budget
from tuner.running.loop import optimize, plan_recording, record_cases, recording_bench
from tuner.study import Case, Config, grouped

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
