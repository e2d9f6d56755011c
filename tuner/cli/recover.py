"""`tuner recover`: find one config that runs for each case that has had no success."""

from dataclasses import replace
from functools import partial

import typer
from rich.console import Console

from tuner.cli.case_tables import print_tables, summary_table
from tuner.cli.chosen import Cases, chosen_cases
from tuner.cli.console import open_console
from tuner.cli.hints import safe_rungs, written
from tuner.cli.opened import open_reader
from tuner.cli.options import RUNS, Devices, Runs, Storage, Study, database_url
from tuner.cli.work import EXIT_INTERRUPTED, at_work, conclude
from tuner.export.case_view import CaseSummary
from tuner.export.write import export_study
from tuner.running.job import RECOVER
from tuner.running.loop import optimise
from tuner.running.prober import open_prober
from tuner.running.workbench import Workbench, open_workbench


def recover(
    study: Study,
    cases: Cases = None,
    devices: Devices = None,
    storage: Storage = None,
    runs: Runs = RUNS,
) -> None:
    """For each case without a success, find one config that runs. Then name a num_envs that is safe for all cases."""
    console = open_console()
    bench = open_workbench(study, devices=devices, runs=runs)
    chosen = chosen_cases(bench, cases)
    url = database_url(storage, bench.folder)
    show = partial(_show, console, bench, url)
    with at_work(console, bench, chosen, url, open_prober(bench, console.print), show=show) as job:
        outcomes = optimise(replace(job, purpose=RECOVER), chosen)
        interrupted = job.interrupted()
    if not outcomes:
        raise typer.Exit(EXIT_INTERRUPTED)
    conclude(outcomes, show(), interrupted=interrupted)


def _show(console: Console, bench: Workbench, url: str) -> list[CaseSummary]:
    """Show and export the study; return its summary, one row per case."""
    reader = open_reader(url, bench.spec.name)
    rows = reader.rows
    print_tables(console, summary_table(rows))
    for line in safe_rungs(reader):
        console.print(line)
    written(console, export_study(url, bench.spec.name, bench.folder))
    return rows
