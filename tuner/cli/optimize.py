"""`tuner optimize`: run or resume a study."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tuner.cli.console import open_console
from tuner.cli.front import front_tables
from tuner.cli.hints import at_the_top, notes, out_of_time, replayed, script_of_best, written
from tuner.cli.introduction import replaying
from tuner.cli.options import RUNS, Cases, Devices, Hours, Runs, Storage, Study, chosen_cases, database_url
from tuner.cli.tables import print_tables, summary_table
from tuner.cli.work import EXIT_INTERRUPTED, at_work, conclude
from tuner.errors import StudyError
from tuner.export.database import connect
from tuner.export.query import StudyReader
from tuner.export.summary import CaseSummary, summarise
from tuner.export.write import export_study
from tuner.job import Budget, within
from tuner.loop import optimise
from tuner.probe.clock import MonotonicClock
from tuner.probe.protocols import Prober
from tuner.prober import open_prober
from tuner.replay.bench import replay_bench
from tuner.replay.prober import ReplayedProber
from tuner.replay.table import Table
from tuner.study.cases import Case
from tuner.workbench import Workbench, open_workbench

Trials = Annotated[
    int | None, typer.Option("--n-trials", min=1, help="Finished trials per case; default: the study's.")
]
Replay = Annotated[
    Path | None,
    typer.Option(dir_okay=False, help="A table of `tuner record` (.parquet) to probe instead, in simulated time."),
]


def optimize(
    study: Study,
    cases: Cases = None,
    n_trials: Trials = None,
    devices: Devices = None,
    hours: Hours = None,
    replay: Replay = None,
    storage: Storage = None,
    runs: Runs = RUNS,
) -> None:
    """Run a study; the same command resumes it."""
    if replay and (cases or devices):
        raise StudyError("--replay takes case and devices from the table; leave out --cases and --devices")
    budget = Budget(MonotonicClock(), hours)
    console = open_console()
    if replay:
        bench, prober, last_word = _replay(console, replay, study, runs)
    else:
        bench = open_workbench(study, devices=devices, runs=runs)
        prober = open_prober(bench, console.print)
        last_word = partial(script_of_best, study, devices=devices, storage=storage, runs=runs)
    chosen = chosen_cases(bench, cases)
    url = database_url(storage, bench.folder)
    show = partial(_show, console, bench, chosen, url)
    with at_work(console, bench, chosen, url, prober, show=show) as job:
        limited = replace(within(job, budget, foresee=not replay), trials=n_trials)
        outcomes = optimise(limited, chosen)
        interrupted = job.interrupted()
    if budget.over():
        console.print(out_of_time(budget))
    if not outcomes:
        raise typer.Exit(EXIT_INTERRUPTED if interrupted else 0)
    rows = show()
    if replay or any(row.best for row in rows):
        console.print(last_word(), markup=False)
    conclude(outcomes, rows, interrupted=interrupted)


def _replay(console: Console, file: Path, study: str, runs: Path) -> tuple[Workbench, Prober, Callable[[], str]]:
    """Open a study on a recorded table; return its bench, its prober, and a function that returns the last line."""
    table = Table.load(file)
    bench = replay_bench(table, study, runs=runs)
    prober = ReplayedProber(table, *bench.spec.objectives)
    console.print(replaying(table, file), markup=False)
    return bench, prober, lambda: replayed(bench, prober.spent_s)


def _show(console: Console, bench: Workbench, cases: Sequence[Case], url: str) -> list[CaseSummary]:
    """Show and export the study; return its summary, one row per case."""
    reader = StudyReader(connect(url), bench.spec.name)
    rows = summarise(reader)
    print_tables(console, summary_table(rows), *front_tables(reader))
    for hint in (*notes(rows), *at_the_top(bench, cases, rows)):
        console.print(hint, markup=False)
    written(console, export_study(url, bench.spec.name, bench.folder))
    return rows
