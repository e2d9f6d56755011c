"""`tuner soak`: does the best config still run at hour three?"""

from dataclasses import replace
from typing import Annotated

import typer

from tuner.cli.chosen import Cases, chosen_cases, open_reader
from tuner.cli.console import open_console
from tuner.cli.hints import written
from tuner.cli.options import RUNS, Devices, Runs, Storage, Study, database_url
from tuner.cli.work import EXIT_INTERRUPTED, at_work, conclude
from tuner.export.write import export_study
from tuner.running.loop import optimise
from tuner.running.prober import open_prober
from tuner.running.workbench import open_workbench
from tuner.soaking.soak import soaking, told

Minutes = Annotated[float, typer.Option(min=0.01, help="The longest run of a config; it ends once enough is known.")]

TrainingHours = Annotated[
    float | None, typer.Option("--hours", min=0.001, help="The length of the training; default: the study's.")
]


def soak(
    study: Study,
    cases: Cases = None,
    minutes: Minutes = 15.0,
    hours: TrainingHours = None,
    devices: Devices = None,
    storage: Storage = None,
    runs: Runs = RUNS,
) -> None:
    """Run the best config for minutes and say whether its memory lasts for hours; else try smaller ones."""
    console = open_console()
    bench = open_workbench(study, devices=devices, runs=runs)
    chosen, url = chosen_cases(bench, cases), database_url(storage, bench.folder)
    purpose = soaking(bench, minutes, hours)
    with at_work(console, bench, chosen, url, open_prober(bench, console.print), show=lambda: None) as job:
        outcomes = optimise(replace(job, purpose=purpose), chosen)
        interrupted = job.interrupted()
    if not outcomes:
        raise typer.Exit(EXIT_INTERRUPTED)
    reader = open_reader(url, bench.spec.name)
    for view in reader.cases:
        for line in told(view, hours or bench.spec.search.training_hours):
            console.print(line)
    written(console, export_study(url, bench.spec.name, bench.folder))
    conclude(outcomes, reader.rows, interrupted=interrupted)
