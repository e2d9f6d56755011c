"""`tuner status`, `tuner export` and `tuner dashboard`, which show what a study's database contains."""

from itertools import starmap
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tuner.cli.console import open_console
from tuner.cli.document import Json, plain, print_document
from tuner.cli.front import front_rows, front_tables
from tuner.cli.hints import at_its_end, notes, written
from tuner.cli.introduction import fitted, ladder, load_shown
from tuner.cli.options import RUNS, Runs, Storage, Study, database_url, storage_url
from tuner.cli.tables import print_tables, summary_table
from tuner.errors import StoreError
from tuner.export.copied import ARTIFACTS, copy_study
from tuner.export.copied import DATABASE as COPIED
from tuner.export.dashboard import serve
from tuner.export.database import connect
from tuner.export.facts import fitted_batches, fixed_rungs, reasons_to_end
from tuner.export.query import StudyReader
from tuner.export.served import LOOPBACK, READ_ONLY, WRITABLE
from tuner.export.summary import summarise
from tuner.export.table import export_tables
from tuner.export.write import export_study
from tuner.recording import DATABASE, TABLES
from tuner.report.facts import gather
from tuner.report.words import note
from tuner.urls import shown

Port = Annotated[int, typer.Option(min=1, max=65535, help="On this machine's loopback interface.")]

ReadOnly = Annotated[
    bool, typer.Option("--read-only/--writable", help="Whether studies can be renamed, annotated or deleted there.")
]

Copied = Annotated[
    bool,
    typer.Option("--copy", help="Show a copy of the study, with logs, devices' series and plots of its probes."),
]

Recorded = Annotated[
    bool, typer.Option("--recorded", help="Write the tables of `tuner record` so far, instead of the study's.")
]


def status(study: Study, storage: Storage = None, runs: Runs = RUNS, as_json: Json = False) -> None:
    """Show where a study stands."""
    console = open_console(stderr=as_json)
    spec = load_shown(console, study, to_show=True)
    engine = connect(storage_url(storage, spec, runs))
    reader = StudyReader(engine, spec.name)
    rows = summarise(reader)
    rungs, reasons = fixed_rungs(engine, spec.name), reasons_to_end(engine, spec.name)
    batches = fitted_batches(engine, spec.name)
    if as_json:
        more = [
            {
                "front": front_rows(reader, case),
                "rungs": rungs.get(case.name),
                "batch": batches.get(case.name),
                "ended": reasons.get(case.name),
            }
            for case in reader.cases
        ]
        cases = [{**plain(row), **facts} for row, facts in zip(rows, more, strict=True)]
        print_document({"study": spec.name, "cases": cases, "notes": notes(rows)})
        return
    print_tables(console, summary_table(rows), *front_tables(reader))
    for line in (
        *starmap(ladder, rungs.items()),
        *(fitted(case, "the batch size", str(batch)) for case, batch in batches.items()),
        *starmap(at_its_end, reasons.items()),
        *notes(rows),
    ):
        console.print(line, markup=False)


def export(
    study: Study, recorded: Recorded = False, storage: Storage = None, runs: Runs = RUNS, as_json: Json = False
) -> None:
    """Write a study's tables: best_by_case, case_manifest, method_summary, trials; pareto for several objectives."""
    console = open_console(stderr=as_json)
    spec = load_shown(console, study, to_show=True)
    folder = (runs / spec.name).resolve()
    if recorded:
        paths = export_tables(url := database_url(storage, folder, DATABASE), spec.name, folder / TABLES)
        if not paths:
            raise StoreError(f"{shown(url)} contains no probes of `tuner record`; run `tuner record` first")
    else:
        paths = export_study(storage_url(storage, spec, runs), spec.name, folder)
    if as_json:
        print_document({"study": spec.name, "files": paths})
    else:
        written(console, paths)


def dashboard(
    study: Study,
    copied: Copied = False,
    storage: Storage = None,
    port: Port = 8080,
    read_only: ReadOnly = True,
    runs: Runs = RUNS,
) -> None:
    """Serve optuna-dashboard on a study's database, to this machine only, until Ctrl-C."""
    console = open_console()
    spec = load_shown(console, study, to_show=True)
    url, artifacts = storage_url(storage, spec, runs), None
    if copied:
        url, artifacts = _copied(console, url, spec.name, (runs / spec.name).resolve())
    may = "read" if read_only else "read, change and delete"
    announcement = (
        f"dashboard of {spec.name}: http://{LOOPBACK}:{port}/ (Ctrl-C ends it); "
        f"every user of this machine can {may} all studies of this {'copy' if copied else 'database'}, "
        "nobody else can reach it"
    )
    access = READ_ONLY if read_only else WRITABLE
    serve(url, port, access=access, artifacts=artifacts, ready=lambda: console.print(announcement))


def _copied(console: Console, url: str, study: str, folder: Path) -> tuple[str, Path]:
    """Copy a study for the dashboard; return the URL of the copy and the folder of its artifacts."""
    reader = StudyReader(connect(url), study)
    notes = {case.summary.case: note(case) for case in gather(reader, folder).cases}
    copy = copy_study(reader, folder, notes)
    console.print(f"{copy} is a copy of now; the same command renews it", markup=False)
    return f"sqlite:///{copy / COPIED}", copy / ARTIFACTS
