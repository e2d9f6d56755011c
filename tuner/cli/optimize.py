"""`tuner optimize`: run or resume a study, by itself or with several workers."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated

import typer
from rich.console import Console

from tuner.cli.case_tables import front_tables, print_tables, summary_table
from tuner.cli.chosen import Cases, open_reader
from tuner.cli.console import open_console
from tuner.cli.hints import at_the_top, notes, of_all, out_of_time, script_of_best, written
from tuner.cli.options import RUNS, Devices, Hours, Launcher, Runs, Storage, Study, database_url, plain
from tuner.cli.report import report_at_the_end, training_command
from tuner.cli.screen import JsonScreen, Screen
from tuner.cli.slurm import submit_workers
from tuner.cli.work import EXIT_INTERRUPTED, at_work, conclude
from tuner.cli.worker import Replay, Trials, divided, open_search, run_team
from tuner.export.case_view import CaseSummary
from tuner.export.write import export_study
from tuner.probe.protocols import MonotonicClock
from tuner.running.events import StudyEnded
from tuner.running.job import Budget
from tuner.running.workbench import Workbench
from tuner.soaking.soak import USUAL_MINUTES, soaking
from tuner.study.cases import Case

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors and the final table.")]
JsonLines = Annotated[
    bool, typer.Option("--json", help="Print each event as a line of JSON for scripts; other text goes to stderr.")
]
Workers = Annotated[int | None, typer.Option(min=1, help="Probes side by side, each on GPUs of its own.")]
PerTrial = Annotated[
    int | None, typer.Option("--gpus-per-trial", min=1, help="GPUs per probe; alone, as many workers as fit.")
]

Soak = Annotated[bool, typer.Option("--soak", help="At the end, see whether the best's memory lasts: `tuner soak`.")]


def optimize(
    study: Study,
    cases: Cases = None,
    n_trials: Trials = None,
    devices: Devices = None,
    workers: Workers = None,
    gpus_per_trial: PerTrial = None,
    launcher: Launcher = "local",
    hours: Hours = None,
    replay: Replay = None,
    storage: Storage = None,
    runs: Runs = RUNS,
    soak: Soak = False,
    quiet: Quiet = False,
    as_json: JsonLines = False,
) -> None:
    """Run a study; the same command resumes it."""
    options = {"study": study, "cases": cases, "n-trials": n_trials, "hours": hours, "replay": replay, "runs": runs}
    if launcher == "slurm":
        submit_workers(
            open_console(), study, storage, runs, count=workers or 1, options={**options, "devices": devices}
        )
        return
    budget = Budget(MonotonicClock(), hours)
    console = open_console(quiet=quiet, stderr=as_json)
    screen = JsonScreen(sys.stdout) if as_json else None
    groups = divided(study, devices, replay=replay, workers=workers, per_trial=gpus_per_trial)
    own_devices = groups[0] if groups else devices
    search = open_search(console, study, cases=cases, devices=own_devices, replay=replay, runs=runs)
    url = database_url(storage, search.bench.folder)
    command = None if search.simulated else training_command(study, storage=storage, runs=runs)
    tables = open_console() if quiet and not as_json else console
    show = partial(_show, console, tables, screen, search.bench, search.cases, url, command)
    if len(groups) > 1:
        run_team(console, search, url, groups, screen=screen, options=options, show=show)
        return
    with at_work(console, search.bench, search.cases, url, search.prober, show=show, screen=screen) as job:
        outcomes = search.run(job, budget, n_trials)
        if soak and outcomes and not (search.simulated or job.interrupted()):
            outcomes = search.run(replace(job, purpose=soaking(search.bench, USUAL_MINUTES)), budget, None)
        interrupted = job.interrupted()
    if budget.over():
        console.print(out_of_time(budget))
    if not outcomes:
        raise typer.Exit(EXIT_INTERRUPTED if interrupted else 0)
    rows = show()
    if line := of_all(search.cases, outcomes, rows, len(search.bench.devices)):
        console.print(line)
    if search.simulated_cost:
        console.print(search.simulated_cost())
    elif any(row.best for row in rows):
        console.print(script_of_best(study, devices=own_devices, storage=storage, runs=runs))
    conclude(outcomes, rows, interrupted=interrupted)


def _show(
    console: Console,
    tables: Console,
    screen: Screen | None,
    bench: Workbench,
    cases: Sequence[Case],
    url: str,
    command: list[str] | None,
) -> list[CaseSummary]:
    """Show and export the study, and write its report; return its summary, one row per case."""
    reader = open_reader(url, bench.spec.name)
    rows = reader.rows
    print_tables(tables, summary_table(rows), *front_tables(reader))
    if screen:
        screen.show(StudyEnded(study=bench.spec.name, cases=tuple(map(plain, rows))))
    for hint in (*notes(rows), *at_the_top(bench, cases, rows)):
        console.print(hint)
    written(console, export_study(url, bench.spec.name, bench.folder))
    report_at_the_end(console, url, bench, command=command)
    return rows
