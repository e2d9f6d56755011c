"""`tuner report`, one page about a study for anybody; `tuner dashboard`, optuna-dashboard on a study."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from tuner.cli import options
from tuner.cli.hints import plan_best
from tuner.cli.status import selected_cases
from tuner.errors import TunerError
from tuner.export import StudyReader, connect, write_files
from tuner.export.served import LOOPBACK, serve
from tuner.report.facts import gather
from tuner.running.workbench import Workbench, chosen_cases
from tuner.study import literal_line

Format = Annotated[Literal["html", "md"], typer.Option("--format", help="html: one file with pictures; md: Markdown.")]
Out = Annotated[Path | None, typer.Option(dir_okay=False, help="The file; default: runs/STUDY/report.html or .md.")]


def report(
    study: options.Study,
    form: Format = "html",
    out: Out = None,
    storage: options.Storage = None,
    runs: options.Runs = options.RUNS,
) -> None:
    """Write one page about a study: the best configs, how certain they are, the failures, and the cost."""
    console = options.open_console()
    options.need_report("tuner report")
    spec, folder, url = options.open_shown(console, study, storage, runs)
    command = plan_best(study, storage=storage, runs=runs)
    path = out or folder / f"report.{form}"
    known = selected_cases(spec)
    names = None if known is None else [case.name for case in known]
    options.written(console, [write_report(path, url, spec.name, folder, trainable=names, form=form, command=command)])


def write_report(
    path: Path,
    url: str,
    study: str,
    folder: Path,
    *,
    trainable: Sequence[str] | None = None,
    form: str = "html",
    command: list[str] | None,
) -> Path:
    """Return the path of a study's report, after writing it as `html` or `md`.

    `folder` holds the probes' folders. `trainable` are the study's cases, if known. `command` prints how to train with
    the best configs.
    Raises StoreError or OutputError.
    """
    from tuner.report.page import render  # noqa: PLC0415 - the extra `report` brings plotly and jinja2

    facts = gather(StudyReader(connect(url), study), folder, trainable)
    names = [case.summary.case for case in facts.cases]
    commands = {name: literal_line([*command, "--cases", name]) for name in names} if command else {}
    text = render(facts, form=form, commands=commands)
    return write_files(path.parent.resolve(), {path.name: text.encode()})[0]


def report_at_the_end(console: Console, url: str, bench: Workbench, *, command: list[str] | None) -> Path | None:
    """Return the report in the study's folder, written where its extra is installed. No error ends the search."""
    if options.lacking():
        return None
    study, folder = bench.spec.name, bench.folder
    try:
        names = [case.name for case in chosen_cases(bench, None)]
        return write_report(folder / "report.html", url, study, folder, trainable=names, command=command)
    except Exception as error:  # noqa: BLE001 - whatever fails here, the results of the search are stored
        why = str(error) if isinstance(error, TunerError) else f"{type(error).__name__}: {error}"
        console.print(f"no report: {why}")
        return None


Port = Annotated[int, typer.Option(min=1, max=65535, help="On this machine's loopback interface.")]


def dashboard(
    study: options.Study,
    storage: options.Storage = None,
    port: Port = 8080,
    runs: options.Runs = options.RUNS,
) -> None:
    """Serve optuna-dashboard on a study, to this machine only, until Ctrl-C."""
    console = options.open_console()
    spec, _, url = options.open_shown(console, study, storage, runs)
    _ = StudyReader(connect(url), spec.name).cases  # refuses a database without the study
    known = (
        f"dashboard of {spec.name}: http://{LOOPBACK}:{port}/ (Ctrl-C ends it); every user of this machine can read "
        "all studies of this database, nobody else can reach it"
    )
    serve(url, port, ready=lambda: console.print(known))
