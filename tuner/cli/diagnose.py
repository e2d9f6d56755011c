"""`tuner diagnose`: why the GPUs of an Optuna study wait, be it ours or not, and what to change."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tuner.cli import options
from tuner.cli.case_tables import print_tables
from tuner.errors import StudyError
from tuner.export import connect
from tuner.records.urls import checked_url, database_url, shown
from tuner.tools.diagnosis.diagnosing import OPTIONS, diagnose_journal, rows, sentences, studies_in, unknown
from tuner.tools.diagnosis.diagnosing import diagnose as diagnosed
from tuner.tools.diagnosis.study_times import Setup, known


def _number(least: float, help: str, most: float | None = None) -> Any:  # noqa: A002 - as typer calls it
    return typer.Option(min=least, max=most, callback=options.finite, help=help)


Ours = Annotated[
    str | None,
    typer.Option("--study", "-s", autocompletion=options.studies, help="A study of tuner: its name or .yaml file."),
]
Name = Annotated[
    str | None,
    typer.Option("--study-name", help="The name of any Optuna study in --storage, a URL or a journal's path."),
]
Startup = Annotated[float | None, _number(0, "Seconds from a trial's start until it trains.")]
Duty = Annotated[float | None, _number(1, "Mean utilisation of the GPUs in percent.", most=100)]
Workers = Annotated[float | None, _number(0, "Processes of one trial that load data.")]
Cores = Annotated[int | None, typer.Option(min=1, help="CPU cores of the machine.")]
Jobs = Annotated[
    int | None, typer.Option("--n-jobs", min=1, help="Trials that run in threads of one process (Optuna's n_jobs).")
]
Gpus = Annotated[int | None, typer.Option(min=1, help="GPUs of the machine.")]
PerTrial = Annotated[int | None, typer.Option("--gpus-per-trial", min=1, help="GPUs that one trial uses.")]
Memory = Annotated[float | None, _number(0.1, "GiB of one GPU.")]
Used = Annotated[float | None, _number(0.1, "GiB of one GPU that are in use while trials run.")]


def diagnose(
    study: Ours = None,
    study_name: Name = None,
    storage: options.Storage = None,
    startup_seconds: Startup = None,
    duty: Duty = None,
    cores: Cores = None,
    loader_workers: Workers = None,
    n_jobs: Jobs = None,
    gpus: Gpus = None,
    gpus_per_trial: PerTrial = None,
    gpu_memory: Memory = None,
    memory_used: Used = None,
    as_json: options.Json = False,
    runs: options.Runs = options.RUNS,
) -> None:
    """Say why the GPUs of any Optuna study wait, and what to change. The database is only read."""
    console = options.open_console(stderr=as_json)
    name = _name_of(console, study, study_name, storage, runs)
    url = storage if study_name and storage else database_url(storage, (runs / name).resolve())
    given = {
        "startup_s": startup_seconds,
        "duty_pct": duty,
        "cores": cores,
        "loader_workers": loader_workers,
        "n_jobs": n_jobs,
        "gpus": gpus,
        "gpus_per_trial": gpus_per_trial,
        "gpu_memory_gib": gpu_memory,
        "memory_used_gib": memory_used,
    }
    setup = Setup(**{field: known(value, OPTIONS[field]) for field, value in given.items()})
    if "://" not in url and Path(url).is_file():
        diagnosis = diagnose_journal(Path(url), name, setup)
    else:
        engine = connect(url, filled_by="tuner optimize" if study else "optuna.create_study")
        diagnosis = diagnosed(engine, name, setup)
    facts = diagnosis.facts
    if as_json:
        options.print_document({**options.plain(facts), "causes": diagnosis.causes, "unknown": unknown(facts)})
        return
    title = f"study {facts.study}: {facts.trials} ended trials"
    table = Table("fact", "value", "from", title=title, title_justify="left")
    for row in rows(facts):
        table.add_row(*row)
    print_tables(console, table)
    for line in sentences(diagnosis):
        console.print(line)


def _name_of(console: Console, study: str | None, study_name: str | None, storage: str | None, runs: Path) -> str:
    """Return the name of the study that the options name. Raises StudyError if they do not name one study."""
    if study is not None and study_name is None:
        try:
            spec = options.load_shown(
                console, study, to_show=True, url_of=lambda name: database_url(storage, (runs / name).resolve())
            )
        except StudyError as error:
            if storage is None:
                raise
            raise StudyError(f"{error}; {shown(checked_url(storage))}: {studies_in(connect(storage))}") from error
        return spec.name
    if study_name is None or study is not None:
        raise StudyError("name one study: --study-name NAME and --storage URL, or --study S for a study of tuner")
    if storage is None:
        raise StudyError("--study-name needs --storage, the URL of the study's database")
    return study_name
