"""`tuner record`: measure a whole space, or a sample of it, and write tables that searches can be replayed against."""

from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.chosen import Cases, chosen_cases, with_fixed_values
from tuner.cli.console import open_console
from tuner.cli.hints import out_of_time, recorded, written
from tuner.cli.options import RECORDED, RUNS, TABLES, Devices, Hours, Out, Runs, Storage, Study, database_url
from tuner.cli.work import EXIT_INTERRUPTED, at_work, conclude
from tuner.errors import EmptyStoreError, StudyError
from tuner.export.reader import connect
from tuner.export.recorded_table import TABLE_SUFFIX, export_tables
from tuner.export.write import prepare_folder
from tuner.probe.protocols import MonotonicClock
from tuner.replay.recorded import Table
from tuner.running.job import Budget, within
from tuner.running.prober import open_prober
from tuner.running.recording import plan_recording, record_cases, recording_bench
from tuner.running.workbench import open_workbench

Grid = Annotated[bool, typer.Option("--grid", help="Record every config of the space; the default.")]
Count = Annotated[
    int | None, typer.Option("--configs", min=1, help="Record only this many configs, spread over the space.")
]


def record(
    study: Study,
    grid: Grid = False,
    count: Count = None,
    cases: Cases = None,
    devices: Devices = None,
    hours: Hours = None,
    storage: Storage = None,
    runs: Runs = RUNS,
    out: Out = None,
) -> None:
    """Measure every config of a space, or a sample of it, and write tables; the same command resumes."""
    if grid and count is not None:
        raise StudyError("--grid records every config, and --configs records a part of them; give only one of them")
    budget = Budget(MonotonicClock(), hours)
    console = open_console()
    searched = open_workbench(study, devices=devices, runs=runs)
    bench = recording_bench(searched)
    chosen = chosen_cases(bench, cases)
    url = database_url(storage, searched.folder, RECORDED)
    folder = (out or searched.folder / TABLES).resolve()
    prepare_folder(folder)
    write = partial(export_tables, url, bench.spec.name, folder)
    prober = open_prober(bench, console.print)
    with at_work(console, bench, chosen, url, prober, show=lambda: written(console, write())) as job:
        bench = with_fixed_values(bench, connect(url))
        recordings = [plan_recording(bench, case, count) for case in chosen]
        recordings, outcomes = record_cases(replace(within(job, budget), bench=bench), recordings)
        interrupted = job.interrupted()
    if budget.over():
        console.print(out_of_time(budget))
    if interrupted and not outcomes:
        raise typer.Exit(EXIT_INTERRUPTED)
    paths: list[Path] = []
    with suppress(EmptyStoreError):  # no case has begun if no time was left
        paths = write()
    tables = {path.stem: Table.load(path) for path in paths if path.suffix == TABLE_SUFFIX}
    for one in recordings:
        console.print(recorded(one.case, one.configs, tables.get(one.case.name)))
    written(console, paths)
    conclude(outcomes, interrupted=interrupted)
