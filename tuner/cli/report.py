"""`tuner report`, one page about a study for anybody; `tuner dashboard`, optuna-dashboard on a study."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tuner.cli.hints import command_of_best
from tuner.cli.options import RUNS, Runs, Storage, Study, open_console, open_shown, print_written
from tuner.cli.show import selected_cases
from tuner.drafting.outcome import best_folder, typed_line
from tuner.errors import ConfigRefusedError, TunerError
from tuner.export import CaseView, StudyReader, connect, relative_to_cwd, write_files
from tuner.export.served import LOOPBACK, check_free, serve, serve_forever
from tuner.report.facts import StudyFacts, gather
from tuner.running.job import Workbench, chosen_cases, open_workbench
from tuner.study import Case, StudySpec, literal_line
from tuner.trainers.command import CommandTrainer

Serve = Annotated[bool, typer.Option("--serve", help="Serve the page, which follows the study, until Ctrl-C.")]
Port = Annotated[int, typer.Option(min=1, max=65535, help="On this machine's loopback interface.")]


def report(
    study: Study,
    served: Serve = False,
    port: Port = 8080,
    storage: Storage = None,
    runs: Runs = RUNS,
) -> None:
    """Write one page about a study: the best configs, how certain they are, the failures, and the cost.

    Example: tuner report --study train --serve
    """
    console = open_console()
    spec, folder, url = open_shown(console, study, storage, runs)
    commands_of = partial(lines_to_copy, command_of_best(study, storage=storage, runs=runs), _bench(study, spec, runs))
    trainable = selected_cases(spec)
    names = None if trainable is None else [case.name for case in trainable]
    if served:
        from tuner.report.page import live_page, render  # noqa: PLC0415 - as below

        def page(reader: StudyReader, version: str) -> str:
            """Return the page of what the study has by now; `version` tells a browser whether it is new."""
            facts = gather(reader, folder, names)
            return render(facts, commands=commands_of(facts), live=version)

        _ = StudyReader(connect(url), spec.name).cases  # refuses a database without the study
        check_free(port)
        address = f"http://{LOOPBACK}:{port}/"
        console.print(f"report of {spec.name}: {address} (Ctrl-C ends it); only this machine can reach it")
        serve_forever(live_page(lambda: StudyReader(connect(url), spec.name), page), port)
    path = write_report(url, spec.name, folder, trainable=names, commands_of=commands_of)
    print_written(console, [path])


TrainingCommands = Callable[[StudyFacts], Mapping[str, str]]
"""Returns case → the line to copy, which trains with its best config: `lines_to_copy` for a study."""


def lines_to_copy(command: list[str] | None, bench: Workbench | None, facts: StudyFacts) -> Mapping[str, str]:
    """Return case → the line that trains with its best config, or else the command that prints a script for that.

    Args:
        command: the words of the command that prints the scripts of all cases; None after a replay, which cannot train.
        bench: the study's workbench; None where no training command is known.
        facts: the cases of the study.
    """
    if command is None:
        return {}
    lines: dict[str, str] = {}
    for case in facts.cases:
        name = case.summary.case
        lines[name] = (bench and _line_to_train(bench, case.view)) or literal_line([*command, "--cases", name])
    return lines


def _line_to_train(bench: Workbench, view: CaseView) -> str | None:
    """Return the command that the user typed, with a case's best values; None where this line alone cannot train.

    It cannot on several nodes, which need `srun`, and where the values stand in changed copies of configuration files.
    """
    trainer, best = bench.trainer, view.best
    if best is None or bench.spec.slurm.nodes > 1 or not isinstance(trainer, CommandTrainer):
        return None
    try:
        has_copies = bool(trainer.changed_files(best.config, len(bench.devices)))
        return None if has_copies else typed_line(bench, Case(name=view.name), best.config, best_folder(view.name))
    except ConfigRefusedError:  # a value cannot be computed for the devices that are here, which are others
        return None


def _bench(study: str, spec: StudySpec, runs: Path) -> Workbench | None:
    """Return the workbench of a study of a command; None for other studies, or where it cannot be opened here."""
    if spec.trainer.name != "command":
        return None
    try:
        return open_workbench(study, runs=runs)
    except TunerError:
        return None


def write_report(
    url: str,
    study: str,
    folder: Path,
    *,
    trainable: Sequence[str] | None = None,
    commands_of: TrainingCommands,
) -> Path:
    """Return the path of a study's report, after writing it into the study's folder.

    Args:
        url: the database.
        study: the name of the study.
        folder: the study's folder, which holds the folders of its probes.
        trainable: the cases of the study that can be trained, so that the report names those that wait; None where the
            trainer is not there to name them.
        commands_of: returns the training command of each case, for the person to copy.

    Raises StoreError or OutputError.
    """
    from tuner.report.page import render  # noqa: PLC0415 - plotly takes a while

    facts = gather(StudyReader(connect(url), study), folder, trainable)
    text = render(facts, commands=commands_of(facts))
    return write_files(folder, {"report.html": text.encode()})[0]


def report_at_the_end(console: Console, url: str, bench: Workbench, *, command: list[str] | None) -> Path | None:
    """Return the path of the report in the study's folder, after writing it; None where that fails.

    No error is raised, because the search is over: why there is no report is printed on `console`. `command`: the words
    of the command that prints scripts with the best configs; None where a recorded table has stood in for the trainer.
    """
    study, folder = bench.spec.name, bench.folder
    try:
        trainable = [case.name for case in chosen_cases(bench)]
        commands_of = partial(lines_to_copy, command, bench)
        return write_report(url, study, folder, trainable=trainable, commands_of=commands_of)
    except Exception as error:  # noqa: BLE001 - whatever fails here, the results of the search are stored
        why = str(error) if isinstance(error, TunerError) else f"{type(error).__name__}: {error}"
        console.print(f"no report: {why}")
        return None


def whereabouts(report: Path | None, tables: Sequence[Path]) -> str:
    """Return a line that says where the report and the tables are."""
    names = f"{tables[0].name} and {len(tables) - 1} more tables"
    folder = relative_to_cwd(tables[0].parent)
    return f"report: {relative_to_cwd(report)}; beside it {names}" if report else f"{folder}: {names}"


def dashboard(study: Study, storage: Storage = None, port: Port = 8080, runs: Runs = RUNS) -> None:
    """Serve optuna-dashboard on a study, to this machine only, until Ctrl-C.

    Example: tuner dashboard --study train
    """
    console = open_console()
    spec, _, url = open_shown(console, study, storage, runs)
    _ = StudyReader(connect(url), spec.name).cases  # refuses a database without the study
    address = (
        f"dashboard of {spec.name}: http://{LOOPBACK}:{port}/ (Ctrl-C ends it); every user of this machine can read "
        "all studies of this database, nobody else can reach it"
    )
    serve(url, port, ready=lambda: console.print(address))
