"""`tuner verify`: do the speeds of a study still hold, for example after an upgrade?"""

from typing import Annotated

import typer

from tuner.cli.options import RUNS, Devices, Runs, Storage, Study, need_own_study, open_console
from tuner.cli.work import EXIT_INTERRUPTED, Cases, at_work, need_same_devices, searched_case
from tuner.probe import MonotonicClock
from tuner.running.job import Budget
from tuner.tools.verifying.verification import Verification, changed_settings, introduction, report

AtLeast = Annotated[
    float, typer.Option(min=0.01, max=1.0, help="The share of its speed in the study that the best must keep.")
]
Minutes = Annotated[float, typer.Option(min=0.01, max=600.0, help="The time for all runs; there are four at least.")]


def verify(
    study: Study,
    cases: Cases = None,
    at_least: AtLeast = 0.99,
    minutes: Minutes = 4.0,
    devices: Devices = None,
    storage: Storage = None,
    runs: Runs = RUNS,
) -> None:
    """Measure your command and the best again, in turns. Exit code 0: it holds, 1: slower, 2: unknown.

    Example: tuner verify --study train
    """
    console = open_console()
    need_own_study(study, storage, runs)
    what = "a verification"
    bench, chosen, url, view = searched_case(study, cases, what, devices=devices, storage=storage, runs=runs)
    need_same_devices(bench, view)
    with at_work(console, bench, [chosen], url) as job:
        work = Verification(job, chosen, view, Budget(MonotonicClock(), minutes / 60.0), console.print)
        for line in changed_settings(view, bench.identity_for(chosen)):
            console.print(line)
        for line in introduction(work.subjects, minutes, at_least):
            console.print(line)
        findings = work.run(at_least)
    if findings is None:
        raise typer.Exit(EXIT_INTERRUPTED)
    for line in report(findings):
        console.print(line)
    raise typer.Exit(findings.verdict)
