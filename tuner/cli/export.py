"""`tuner export`, which writes a study's tables again."""

from typing import Annotated

import typer

from tuner.cli.console import open_console
from tuner.cli.hints import written
from tuner.cli.introduction import load_shown
from tuner.cli.options import (
    RECORDED,
    RUNS,
    TABLES,
    Json,
    Runs,
    Storage,
    Study,
    database_url,
    print_document,
    storage_url,
)
from tuner.errors import StoreError
from tuner.export.write import export_study
from tuner.kept.urls import shown

Recorded = Annotated[
    bool, typer.Option("--recorded", help="Write the tables of `tuner record` so far, instead of the study's.")
]


def export(
    study: Study, recorded: Recorded = False, storage: Storage = None, runs: Runs = RUNS, as_json: Json = False
) -> None:
    """Write a study's tables: best_by_case, case_manifest, method_summary, trials; pareto for several objectives."""
    console = open_console(stderr=as_json)
    spec = load_shown(console, study, to_show=True)
    folder = (runs / spec.name).resolve()
    if recorded:
        from tuner.export.recorded_table import export_tables  # noqa: PLC0415 - pyarrow, which only recorded tables need

        paths = export_tables(url := database_url(storage, folder, RECORDED), spec.name, folder / TABLES)
        if not paths:
            raise StoreError(f"{shown(url)} contains no probes of `tuner record`; run `tuner record` first")
    else:
        paths = export_study(storage_url(storage, spec, runs), spec.name, folder)
    if as_json:
        print_document({"study": spec.name, "files": paths})
    else:
        written(console, paths)
