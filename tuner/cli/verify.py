"""`tuner verify`: whether the best is still as fast as the search has measured."""

from typing import Annotated

import typer

from tuner.cli import options, work
from tuner.probe import MonotonicClock
from tuner.running.job import Budget
from tuner.tools.verifying import Verification, changed_settings, introduction, report

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
