"""`tuner cases` and `tuner schema`, which list the trainer's cases and describe study files."""

import json
from collections.abc import Collection, Sequence
from typing import Annotated, Literal

import typer
from rich.table import Table

from tuner.cli.case_tables import fits, print_tables
from tuner.cli.hints import load_shown
from tuner.cli.options import Json, Study, open_console, print_document
from tuner.study import Case, StudySpec, select
from tuner.study.reference import reference
from tuner.trainers.registry import open_trainer

Form = Annotated[Literal["json", "md"], typer.Option("--format", help="json: the JSON schema; md: Markdown.")]

FILES_SHOWN = 2
"""The files of a case that `tuner cases` shows, where the terminal is wide enough."""


def cases(study: Study, as_json: Json = False) -> None:
    """List the cases that the study's trainer knows. The cases of the study that can run are marked with `*`."""
    console = open_console(stderr=as_json)
    spec = load_shown(console, study)
    known = open_trainer(spec.trainer).cases()
    chosen = {case.name for case in select(known, spec.cases) if not case.fault}
    if as_json:
        listed = [
            {
                "case": case.name,
                "method": case.method,
                "mode": case.mode,
                "trainable": case.trainable,
                "in_study": case.name in chosen,
                "fault": case.fault or None,
                "options": case.options,
            }
            for case in known
        ]
        print_document({"study": spec.name, "trainer": spec.trainer.name, "cases": listed})
        return
    files = list(dict.fromkeys(name for case in known for name in case.files))[:FILES_SHOWN]
    tables = (_table(known, chosen, shown) for shown in (files, []))
    print_tables(console, next((table for table in tables if fits(console, table)), _table(known, chosen, [])))
    for case in known:
        if case.fault:
            console.print(f"{case.name} cannot run: {case.fault}", soft_wrap=True, markup=False, highlight=False)


def _table(known: Sequence[Case], chosen: Collection[str], files: Sequence[str]) -> Table:
    table = Table("", "case", "method", "mode", *files)
    for case in known:
        mark = "*" if case.name in chosen else "broken" if case.fault else "" if case.trainable else "not trainable"
        table.add_row(mark, case.name, case.method, case.mode, *map(case.options.get, files))
    return table


def schema(form: Form = "json") -> None:
    """Print what a study file may contain: its JSON schema, or a page of all keys."""
    text = reference() if form == "md" else f"{json.dumps(StudySpec.model_json_schema(), indent=2)}\n"
    open_console().print(text, end="")
