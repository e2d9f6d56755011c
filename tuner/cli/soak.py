"""`tuner soak` says whether the memory of the best lasts for hours; `tuner failed` notes that it did not.

A soak runs a config for minutes, in a way that provokes what needs most memory.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tuner import export
from tuner.cli import options, work
from tuner.cli.show import open_reader
from tuner.errors import StoreError
from tuner.records.urls import database_url
from tuner.running.job import Workbench, chosen_cases, open_workbench
from tuner.running.loop import optimize
from tuner.running.prober import prober_on
from tuner.study import MOST_HOURS, Case, Config, ladder_of, literal_word
from tuner.tools.soaking import WholeTraining, job_of_failure, may_be_soaked, reported_failure, soak_purpose, verdicts

SoakMinutes = Annotated[
    float,
    options.number_option("--minutes", 0.01, "The longest run of a config; less if all is known.", 60 * MOST_HOURS),
]
TrainingHours = Annotated[
    float | None,
    options.number_option("--train-hours", 0.001, "The training's length; default: the study's.", MOST_HOURS),
]
TrainingIterations = Annotated[
    int | None, options.number_option("--iterations", 1, "The training's length, in place of hours.", 10**12)
]
Changes = Annotated[
    list[str] | None, typer.Option("--set", help="NAME=VALUE, once per parameter; others are those of the best config.")
]


def soak(
    study: options.Study,
    cases: work.Cases = None,
    minutes: SoakMinutes = 15.0,
    hours: TrainingHours = None,
    iterations: TrainingIterations = None,
    settings: Changes = None,
    devices: options.Devices = None,
    storage: options.Storage = None,
    runs: options.Runs = options.RUNS,
) -> None:
    """Run the best config, or another with --set, for minutes; say whether memory lasts for hours.

    Where the memory of a config does not last, configs with smaller sizes are tried.

    Example: tuner soak --study train --minutes 10
    """
    console = options.open_console()
    options.need_own_study(study, storage, runs)
    bench = open_workbench(study, devices=devices, runs=runs)
    url = database_url(storage, bench.folder)
    chosen = chosen_cases(bench, cases)
    training = WholeTraining.of(bench, hours, iterations)
    named = None  # the config to soak; None for the best of each case
    if settings:
        named = _best_with(bench, work.one_case(bench, cases, "--set"), url, settings)
    else:
        chosen = _cases_to_soak(console, chosen, url, bench, study)
    purpose = soak_purpose(bench, minutes, training, named)
    with work.job_on_console(console, bench, chosen, url) as job:
        outcomes = optimize(replace(job, purpose=purpose), chosen)
        interrupted = job.interrupted()
    if not outcomes:
        raise typer.Exit(work.EXIT_INTERRUPTED)
    reader = open_reader(url, bench.spec.name)
    for view in reader.cases:
        for line in verdicts(view, training):
            console.print(line)
    options.print_written(console, export.export_study(url, bench.spec.name, bench.folder))
    work.exit_by_outcomes(outcomes, reader.rows, interrupted=interrupted)


def _cases_to_soak(console: Console, cases: Sequence[Case], url: str, bench: Workbench, study: str) -> list[Case]:
    """Return the cases with a config to soak, after naming those without. Raises StoreError where no case has one."""
    views = {view.name: view for view in open_reader(url, bench.spec.name).cases}
    training = WholeTraining.of(bench)
    ready = [case for case in cases if (view := views.get(case.name)) and may_be_soaked(view, training)]
    without_best = ", ".join(case.name for case in cases if case not in ready)
    instead = f"`tuner optimize --study {study}` searches first, and --set NAME=VALUE soaks a config of your choice"
    if not ready:
        raise StoreError(f"nothing was soaked: no best config yet for {without_best}; {instead}")
    if without_best:
        console.print(f"no soak for {without_best}, because there is no best config yet; {instead}")
    return ready


def _best_with(bench: Workbench, case: Case, url: str, settings: Sequence[str]) -> Config:
    """Return the best config of a case, or else the first that the study probes, changed by the settings.

    Raises StudyError for a setting outside the space.
    """
    with suppress(StoreError):  # the study has not begun
        view = open_reader(url, bench.spec.name).case(case.name)
        if view and view.best:
            return work.config_with(bench.space_for(case), view.best.config, settings)
    return work.first_config(bench, case, settings)


Oom = Annotated[bool, typer.Option("--oom", help="The training ran out of memory.")]
Log = Annotated[
    Path | None, typer.Option(exists=True, dir_okay=False, help="The output of the training, which says why it failed.")
]


def failed(
    study: options.Study,
    oom: Oom = False,
    log: Log = None,
    settings: Changes = None,
    cases: work.Cases = None,
    devices: options.Devices = None,
    storage: options.Storage = None,
    runs: options.Runs = options.RUNS,
) -> None:
    """Note that a training ran out of memory, and get the next config. Without --set, it was the best.

    Example: tuner failed --study train
    """
    console = options.open_console()
    bench = open_workbench(study, devices=devices, runs=runs)
    url = database_url(storage, bench.folder)
    case = work.one_case(bench, cases)
    failure = reported_failure(work.output_lines(log) if log else (), oom=oom, gpu=bench.kind == "gpu")
    view = open_reader(url, bench.spec.name).case(case.name)
    if not settings and (view is None or view.best is None):
        raise StoreError(export.no_best(case.name))
    config = _best_with(bench, case, url, settings or [])
    prober = prober_on(bench.source, console.print)  # nothing is started: a trial is stored with the failure
    with work.job_on_console(console, bench, [case], url, prober) as job:
        optimize(job_of_failure(job, config, failure, ladder_of(bench.space_for(case))), [case])
    after = open_reader(url, bench.spec.name).case(case.name)
    if after is None or after.best is None:
        raise StoreError(
            f"no other config of {case.name} may be the best; "
            f"`tuner optimize --study {literal_word(study)}` looks for one"
        )
    console.print(
        f"{case.name}: next, train with {export.in_words(after.best.config)}; "
        f"`tuner soak --study {literal_word(study)}` tests it first"
    )
