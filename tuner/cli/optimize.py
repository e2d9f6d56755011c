"""`tuner optimize`: run or resume a study."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console

from tuner.cli.options import RUNS, Cases, Devices, Runs, Storage, Study, patterns, storage_url
from tuner.cli.show import ProgressView, at_the_top, complaint, introduction, open_console, summary_table, written
from tuner.errors import TunerError
from tuner.export.database import connect
from tuner.export.query import StudyReader
from tuner.export.summary import summarise
from tuner.export.write import export_study
from tuner.loop import Job, optimise
from tuner.store.database import Database
from tuner.study.cases import select
from tuner.workbench import open_workbench, prober

EXIT_INTERRUPTED = 130

Trials = Annotated[
    int | None, typer.Option("--n-trials", min=1, help="Finished trials per case; default: the study's.")
]


def optimize(
    study: Study,
    cases: Cases = None,
    n_trials: Trials = None,
    devices: Devices = None,
    storage: Storage = None,
    runs: Runs = RUNS,
) -> None:
    """Run a study, or resume it: the same command goes on where the last one ended."""
    console = open_console()
    bench = open_workbench(study, devices=devices, runs=runs)
    url = storage_url(storage, bench.spec, runs)
    chosen = select(bench.trainer.cases(), patterns(cases, bench.spec))
    database = Database(url)
    introduction(console, bench, chosen, database.shown_url)
    with _interruptible(console) as interrupted:
        view = ProgressView(console)
        job = Job(
            bench=bench,
            database=database,
            probe=prober(bench),
            watcher=view,
            interrupted=interrupted.is_set,
            trials=n_trials,
        )
        try:
            outcomes = optimise(job, chosen)
        finally:
            view.close()
            database.close()
    if not outcomes:
        raise typer.Exit(EXIT_INTERRUPTED)
    rows = summarise(StudyReader(connect(url), bench.spec.name))
    console.print(summary_table(rows))
    for hint in at_the_top(bench, chosen, rows):
        console.print(hint, markup=False)
    written(console, export_study(url, bench.spec.name, bench.folder))
    if interrupted.is_set():
        raise typer.Exit(EXIT_INTERRUPTED)
    if complaints := [text for outcome in outcomes if (text := complaint(outcome))]:
        raise TunerError("\n".join(complaints))


@contextmanager
def _interruptible(console: Console) -> Iterator[threading.Event]:
    """Let the first Ctrl-C (or TERM) ask for a clean stop; a second Ctrl-C ends the tuner at once."""
    asked = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        asked.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        console.print("stopping the probe; everything measured is kept (Ctrl-C again: at once)")

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
