"""`tuner worker`: probe for a study that several workers share."""

import os
import sys
from typing import Annotated

import typer

from tuner.budget import Budget
from tuner.cli.chosen import Cases
from tuner.cli.console import open_console
from tuner.cli.hints import out_of_time
from tuner.cli.options import RUNS, Devices, Hours, Runs, Storage, Study, database_url
from tuner.cli.screen import JsonScreen
from tuner.cli.search import Replay, Trials, open_search
from tuner.cli.work import at_work, conclude
from tuner.probe.clock import MonotonicClock

Cores = Annotated[str | None, typer.Option(help="CPU cores for this worker and its probes, such as 0,1,2.")]
Led = Annotated[
    bool,
    typer.Option("--led", hidden=True, help="Write progress as JSON lines, and end when the standard input closes."),
]


def worker(
    study: Study,
    cases: Cases = None,
    n_trials: Trials = None,
    devices: Devices = None,
    hours: Hours = None,
    replay: Replay = None,
    storage: Storage = None,
    runs: Runs = RUNS,
    cores: Cores = None,
    led: Led = False,
) -> None:
    """Probe for a study that several workers share; start one for each set of cards, on any number of hosts."""
    if cores:
        os.sched_setaffinity(0, _numbers(cores))
    budget = Budget(MonotonicClock(), hours)
    console = open_console(quiet=led)
    screen = JsonScreen(sys.stdout) if led else None
    search = open_search(console, study, cases=cases, devices=devices, replay=replay, runs=runs)
    url = database_url(storage, search.bench.folder)
    with at_work(
        console, search.bench, search.cases, url, search.prober, show=lambda: None, screen=screen, led=led
    ) as job:
        outcomes = search.run(job, budget, n_trials)
        interrupted = job.interrupted()
    if budget.over():
        console.print(out_of_time(budget))
    conclude(outcomes, interrupted=interrupted)


def _numbers(cores: str) -> set[int]:
    """Return the cores of an option. Raises typer.BadParameter where this machine does not have one of them."""
    allowed = os.sched_getaffinity(0)
    try:
        numbers = {int(word) for word in cores.split(",")}
    except ValueError:
        numbers = set()
    if not numbers or numbers - allowed:
        raise typer.BadParameter(f"{cores!r} is no list of cores of this machine, such as 0,1,2", param_hint="--cores")
    return numbers
