"""What commands that probe share: a job shown as it goes, a clean end on Ctrl-C, and the exit code."""

import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from types import FrameType

import typer
from rich.console import Console

from tuner.cli.console import fall_silent
from tuner.cli.hints import complaint, without_success
from tuner.cli.introduction import introduction
from tuner.cli.progress import ProgressView
from tuner.errors import TunerError
from tuner.export.summary import CaseSummary
from tuner.export.write import prepare_folder
from tuner.job import CaseOutcome, Job
from tuner.probe.protocols import Prober
from tuner.store.database import Database
from tuner.study.cases import Case
from tuner.workbench import Workbench

EXIT_WITHOUT_BEST = 1
EXIT_INTERRUPTED = 130


@contextmanager
def at_work(
    console: Console,
    bench: Workbench,
    cases: Sequence[Case],
    url: str,
    prober: Prober,
    *,
    show: Callable[[], object],
) -> Iterator[Job]:
    """Introduce a study and give the job on it; nothing stays open afterwards.

    `show` shows and writes what was measured, where an error ends the job after its first trial.
    Raises OutputError or StoreError where its folder or its database cannot be used.
    """
    prepare_folder(bench.folder)
    database = Database(url)
    introduction(console, bench, cases, database.shown_url)
    view = ProgressView(console)
    try:
        with interruptible(console) as interrupted, closing(prober), closing(database), closing(view):
            yield Job(
                bench=bench,
                database=database,
                probe=prober,
                watcher=view,
                interrupted=interrupted.is_set,
                open_session=lambda: prober.open_session,
            )
    except TunerError:
        if view.trials:
            with suppress(TunerError):  # what has ended the job comes first
                show()
        raise


def conclude(outcomes: Sequence[CaseOutcome], rows: Iterable[CaseSummary] = (), *, interrupted: bool) -> None:
    """End the command as its cases ended and, where a best is looked for, as `rows` show them.

    Raises TunerError saying what to mend where one stopped early.
    """
    if interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)
    if complaints := [text for outcome in outcomes if (text := complaint(outcome))]:
        raise TunerError("\n".join(complaints))
    worked_on = {outcome.case.name for outcome in outcomes}
    shown = [row for row in rows if row.case in worked_on]
    if without_success(shown) and not any(row.best for row in shown):
        raise typer.Exit(EXIT_WITHOUT_BEST)


@contextmanager
def interruptible(console: Console) -> Iterator[threading.Event]:
    """Let the first Ctrl-C, TERM or loss of the terminal ask for a clean stop; a second Ctrl-C ends at once."""
    asked = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        asked.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if number == signal.SIGHUP:
            fall_silent(sys.stdout, sys.stderr)  # a terminal that is gone fails whoever writes to it
        console.print("stopping the probe; everything measured is kept (Ctrl-C again: at once)")

    heeded = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as `nohup` sets it
        heeded.append(signal.SIGHUP)
    before = {number: signal.signal(number, ask) for number in heeded}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
