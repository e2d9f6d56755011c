"""`tuner dashboard`, which serves a study's database in optuna-dashboard."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tuner.cli.hints import load_shown
from tuner.cli.options import RUNS, Runs, Storage, Study, database_url, open_console
from tuner.export.dashboard_copy import ARTIFACTS, DATABASE, copy_study
from tuner.export.reader import StudyReader, connect
from tuner.export.served import LOOPBACK, READ_ONLY, WRITABLE, serve
from tuner.report.facts import gather
from tuner.report.words import note

Port = Annotated[int, typer.Option(min=1, max=65535, help="On this machine's loopback interface.")]

ReadOnly = Annotated[
    bool, typer.Option("--read-only/--writable", help="Whether studies can be renamed, annotated or deleted there.")
]

Copied = Annotated[
    bool | None,
    typer.Option(
        "--copy/--live",
        help="A copy of now, with notes, logs and plots, or the database itself as it grows. --writable means --live.",
        show_default="--copy",
    ),
]


def dashboard(
    study: Study,
    copied: Copied = None,
    storage: Storage = None,
    port: Port = 8080,
    read_only: ReadOnly = True,
    runs: Runs = RUNS,
) -> None:
    """Serve optuna-dashboard on a study, to this machine only, until Ctrl-C."""
    copied = read_only if copied is None else copied
    console = open_console()
    spec = load_shown(console, study, to_show=True)
    folder = (runs / spec.name).resolve()
    url, artifacts = database_url(storage, folder), None
    reader = StudyReader(connect(url), spec.name)
    _ = reader.cases  # refuses a database without the study
    if copied:
        url, artifacts = _copied(console, reader, folder)
    known = announcement(spec.name, port, read_only=read_only, copied=copied)
    access = READ_ONLY if read_only else WRITABLE
    serve(url, port, access=access, artifacts=artifacts, ready=lambda: console.print(known))


def announcement(study: str, port: int, *, read_only: bool, copied: bool) -> str:
    """Return the line that says where the dashboard is, and who can reach it and do what."""
    may = "read" if read_only else "read, change and delete"
    return (
        f"dashboard of {study}: http://{LOOPBACK}:{port}/ (Ctrl-C ends it); "
        f"every user of this machine can {may} all studies of this {'copy' if copied else 'database'}, "
        "nobody else can reach it"
    )


def _copied(console: Console, reader: StudyReader, folder: Path) -> tuple[str, Path]:
    """Copy a study for the dashboard; return the URL of the copy and the folder of its artifacts."""
    notes = {case.summary.case: note(case) for case in gather(reader, folder).cases}
    copy = copy_study(reader, folder, notes)
    console.print(f"{copy} is a copy of now; the same command renews it")
    return f"sqlite:///{copy / DATABASE}", copy / ARTIFACTS
