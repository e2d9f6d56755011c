"""`tuner race`: train a few configs of a case for the same time, and say which of them learns most."""

from collections.abc import Sequence
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from tuner.cli import completion
from tuner.cli.console import open_console
from tuner.cli.options import RUNS, Devices, Runs, Storage, Study, chosen_cases, database_url
from tuner.cli.work import EXIT_INTERRUPTED, at_work
from tuner.errors import StudyError
from tuner.export.database import connect
from tuner.export.query import StudyReader
from tuner.export.words import in_words
from tuner.kept.race import KeptRun
from tuner.prober import open_prober
from tuner.racing.entrants import Entrant, entrants
from tuner.racing.race import Place, Race
from tuner.racing.verdict import forecasts, verdict
from tuner.store.races import RaceRuns
from tuner.study.cases import Case
from tuner.units import HOUR_S
from tuner.workbench import Workbench, open_workbench

OneCase = Annotated[
    str | None, typer.Option(autocompletion=completion.cases, help="The case; needed where the study has several.")
]
RaceHours = Annotated[
    float, typer.Option(min=0.0001, help="For how long all runs train together, without their start-up.")
]
Seeds = Annotated[int, typer.Option(min=1, help="Runs of each config in each round.")]


def race(
    study: Study,
    case: OneCase = None,
    hours: RaceHours = 1.0,
    seeds: Seeds = 2,
    devices: Devices = None,
    storage: Storage = None,
    runs: Runs = RUNS,
) -> None:
    """Train a few configs of a search for the same time, and say which learns most; the same command resumes."""
    console = open_console()
    bench = open_workbench(study, devices=devices, runs=runs)
    chosen = _one(bench, case)
    url = database_url(storage, bench.folder)
    reader = StudyReader(connect(url), bench.spec.name)
    record = next((one for one in reader.cases if one.name == chosen.name), None)
    if record is None:
        raise StudyError(f"{chosen.name} has no search yet: run `tuner optimize --study {study} --cases {chosen.name}`")
    configs = entrants(reader, record)
    view = _View(console)
    with at_work(console, bench, [chosen], url, open_prober(bench, console.print), show=lambda: None) as job:
        kept = RaceRuns(job.database, bench.study_name(chosen))
        racing = Race(job, chosen, kept, view, configs=configs, seeds=seeds, total_s=hours * HOUR_S)
        for number, one in enumerate(racing.rounds, start=1):
            view.say(f"round {number}: {one.configs} configs, {seeds} seed(s) of {one.seconds:.0f} s each")
        places = racing.run()
        interrupted = job.interrupted()
    updates = {at: bench.trainer.updates_per_iteration(chosen, place.entrant.config) for at, place in enumerate(places)}
    console.print(_table(places, forecasts(places, updates)))
    for line in verdict(places, updates):
        console.print(line, markup=False)
    if interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)


class _View:
    """Prints the events of a race."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def say(self, line: str) -> None:
        self._console.print(line, markup=False)

    def run_started(self, entrant: Entrant, seed: int, seconds: float) -> None:
        self.say(f"training {in_words(entrant.config)} ({entrant.kind}), seed {seed}, for {seconds:.0f} s")

    def run_ended(self, entrant: Entrant, run: KeptRun) -> None:
        scored = f"{len(run.curve)} scores, the last {run.curve[-1][1]:.4g}" if run.curve else "no score"
        self.say(f"  {run.failure}" if run.failure else f"  {run.trained_s:.0f} s of training, {scored}")


def _one(bench: Workbench, name: str | None) -> Case:
    """Return the case of this name, or the study's only case. Raises StudyError where several are meant."""
    found = chosen_cases(bench, [name] if name else None)
    if len(found) != 1:
        known = ", ".join(case.name for case in found)
        raise StudyError(f"a race is about one case, and {name or 'the study'} means {known}; name one with --case")
    return found[0]


def _table(places: Sequence[Place], told: dict[str, list[float | None]]) -> Table:
    table = Table("config", "why", "score", "±", "runs", "after, s", *told, box=box.SIMPLE)
    for at, place in enumerate(places):
        mean = place.mean
        numbers = (mean and mean.value, mean and mean.error, *(values[at] for values in told.values()))
        score, error, *others = ("" if number is None else f"{number:.4g}" for number in numbers)
        table.add_row(
            in_words(place.entrant.config),
            place.entrant.kind,
            score,
            error,
            str(mean.runs if mean else 0),
            f"{place.seconds:.0f}",
            *others,
        )
    return table
