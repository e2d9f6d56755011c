"""`tuner diagnose`: why the GPUs of an Optuna study wait, be it ours or not, and what to change."""

from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.table import Column, Table

from tuner.cli import options
from tuner.cli.options import number_option
from tuner.devices.cpu import usable_cores
from tuner.errors import StudyError
from tuner.export import connect
from tuner.probe import number_of
from tuner.tools.diagnosis import diagnosing
from tuner.tools.diagnosis.diagnosing import diagnose as diagnosed
from tuner.tools.diagnosis.study_times import GUESS, Setup, as_fact

Name = Annotated[
    str | None,
    typer.Option("--study-name", help="The name of any Optuna study in --storage, a URL or a journal's path."),
]
Startup = Annotated[float | None, number_option("--startup-seconds", 0, "Seconds until a trial trains.")]
Duty = Annotated[float | None, number_option("--duty", 1, "Mean utilisation of the GPUs in percent.", most=100)]
Workers = Annotated[float | None, number_option("--loader-workers", 0, "Processes of one trial that load data.")]
Cores = Annotated[int | None, typer.Option(min=1, help="CPU cores of the machine.")]
Jobs = Annotated[
    int | None, typer.Option("--n-jobs", min=1, help="Trials that each process runs at once, as threads (n_jobs).")
]
Gpus = Annotated[int | None, typer.Option(min=1, help="GPUs of the machine.")]
PerTrial = Annotated[int | None, typer.Option("--gpus-per-trial", min=1, help="GPUs that one trial uses.")]
Memory = Annotated[float | None, number_option("--gpu-memory", 0.1, "GiB of one GPU.")]
Used = Annotated[float | None, number_option("--memory-used", 0.1, "GiB of one GPU that are in use while trials run.")]


def diagnose(
    study: Annotated[str | None, options.STUDY] = None,
    study_name: Name = None,
    storage: options.Storage = None,
    startup_s: Startup = None,
    duty_pct: Duty = None,
    cores: Cores = None,
    loader_workers: Workers = None,
    n_jobs: Jobs = None,
    gpus: Gpus = None,
    gpus_per_trial: PerTrial = None,
    gpu_memory_gib: Memory = None,
    memory_used_gib: Used = None,
    as_json: options.Json = False,
    runs: options.Runs = options.RUNS,
) -> None:
    """Say why the GPUs of any Optuna study wait, and what to change. The database is only read.

    Example: tuner diagnose --study pi_plus
    """
    given = locals()  # option → value; `OPTIONS` has the same names
    console = options.open_console(stderr=as_json)
    name, url = _named_study(console, study, study_name, storage, runs)
    setup = Setup(**{field: as_fact(given[field], option) for field, option in diagnosing.OPTIONS.items()})
    if "://" not in url and Path(url).is_file():
        diagnosis = diagnosing.diagnose_journal(Path(url), name, setup)
    else:
        engine = connect(url, filled_by="tuner optimize" if study else "optuna.create_study")
        diagnosis = diagnosed(engine, name, setup)
    if diagnosis.facts.setup.cores is None:
        diagnosis = diagnosing.diagnose_record(diagnosis.facts, Setup(cores=as_fact(usable_cores(), GUESS)))
    facts = diagnosis.facts
    if as_json:
        document = {name: fact for name, fact in options.plain(facts).items() if name != "trials"}
        options.print_document({**document, "causes": diagnosis.causes, "unknown": diagnosing.open_questions(facts)})
        return
    console.print(f"study {facts.study}: {number_of(len(facts.trials), 'ended trial')}")
    table = Table.grid(Column(no_wrap=True), Column(overflow="fold"), padding=(0, 2))
    for label, fact, source in diagnosing.rows(facts):
        who = source.removeprefix(diagnosing.DATABASE).lstrip("; ")
        table.add_row(f"  {label}", f"{fact} ({who})" if who else fact)
    console.print(table)
    for line in diagnosing.sentences(diagnosis):
        console.print(line)


class _NamedStudy(NamedTuple):
    """The study that the options name."""

    name: str
    url: str
    """The URL of its database, or the path of its journal."""


def _named_study(
    console: Console, study: str | None, study_name: str | None, storage: str | None, runs: Path
) -> _NamedStudy:
    """Return the study that the options name: `study` of tuner, or `study_name` of any Optuna program in `storage`.

    Raises StudyError where both or neither are given, or the study cannot be found.
    """
    if study is not None and study_name is None:
        try:
            spec, _, url = options.open_shown(console, study, storage, runs)
        except StudyError as error:
            raise StudyError(f"{error}; name one with --study-name if another program made it") from error
        return _NamedStudy(spec.name, url)
    if study_name is None or study is not None:
        raise StudyError("name one study: --study-name NAME and --storage URL, or --study S for a study of tuner")
    if storage is None:
        raise StudyError("--study-name needs --storage, the URL of the study's database")
    return _NamedStudy(study_name, storage)
