"""`tuner report`: one page about a study, for somebody who did not run the study."""

import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer

from tuner.cli.console import open_console
from tuner.cli.hints import written
from tuner.cli.introduction import load_shown
from tuner.cli.options import RUNS, Runs, Storage, Study, as_words, storage_url
from tuner.errors import TunerError
from tuner.export.database import connect
from tuner.export.query import StudyReader
from tuner.export.write import write_files
from tuner.report.facts import gather

Format = Annotated[Literal["html", "md"], typer.Option("--format", help="html: one file with pictures; md: Markdown.")]
Out = Annotated[Path | None, typer.Option(dir_okay=False, help="The file; default: runs/STUDY/report.html or .md.")]


def report(study: Study, form: Format = "html", out: Out = None, storage: Storage = None, runs: Runs = RUNS) -> None:
    """Write one page about a study: the best configs, how certain they are, the failures, and the cost."""
    console = open_console()
    try:
        from tuner.report.page import render  # noqa: PLC0415 - the extra `report` brings plotly and jinja2
    except ModuleNotFoundError as error:
        raise TunerError(f"tuner report needs {error.name}: pip install 'tuner[report]'") from error
    spec = load_shown(console, study)
    folder = (runs / spec.name).resolve()
    facts = gather(StudyReader(connect(storage_url(storage, spec, runs)), spec.name), folder)
    named = as_words({"study": study, "runs": None if runs == RUNS else runs})
    commands = {
        case.summary.case: shlex.join(["tuner", "plan", *named, "--cases", case.summary.case, "--best"])
        for case in facts.cases
    }
    text = render(facts, form=form, commands=commands)
    path = out or folder / f"report.{form}"
    written(console, write_files(path.parent.resolve(), {path.name: [text.encode()]}))
