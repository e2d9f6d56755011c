"""`tuner race`: train a few configs of a case for the same time, and say which of them learns most."""

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer
from rich import box
from rich.table import Table

from tuner.cli.case_tables import print_tables
from tuner.cli.options import RUNS, Devices, Runs, Storage, Study, number_option, open_console
from tuner.cli.work import EXIT_INTERRUPTED, EXIT_WITHOUT_BEST, Cases, at_work, one_case
from tuner.errors import StudyError
from tuner.export import StudyReader, connect, figure, in_words
from tuner.optimizing import patient
from tuner.probe import HOUR_S, MonotonicClock, number_of
from tuner.records.urls import database_url
from tuner.running.event_lines import out_of_time
from tuner.running.job import Budget, within
from tuner.running.workbench import open_workbench
from tuner.store.races import RaceRuns
from tuner.study import literal_line
from tuner.tools.racing.contest import Place, Race, verdict
from tuner.tools.racing.entrants import Entrant, Round, entrants, rounds

RaceHours = Annotated[
    float, number_option("--train-hours", 0.0001, "The hours that all runs train, added up. Start-ups come on top.")
]
Within = Annotated[
    float | None, number_option("--within", 0, "End this call within so many hours: begin only runs that fit.")
]
Trials = Annotated[
    list[int] | None, typer.Option("--trial", min=0, help="A trial whose config takes part, too; may be repeated.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the configs and the rounds, and train nothing.")]
Seeds = Annotated[int, typer.Option(min=1, help="Runs of each config in each round.")]


def race(
    study: Study,
    cases: Cases = None,
    hours: RaceHours = 1.0,
    seeds: Seeds = 2,
    within_hours: Within = None,
    trials: Trials = None,
    dry_run: DryRun = False,
    devices: Devices = None,
    storage: Storage = None,
    runs: Runs = RUNS,
) -> None:
    """Train a few configs of a search for the same time, and say which learns most; rerun to resume.

    Example: tuner race --study pi_plus --train-hours 1
    """
    console = open_console()
    bench = open_workbench(study, devices=devices, runs=runs)
    chosen = one_case(bench, cases, "a race")
    url = database_url(storage, bench.folder)
    searched = StudyReader(connect(url), bench.spec.name).case(chosen.name)
    if searched is None:
        search = literal_line(["tuner", "optimize", "--study", study, "--cases", chosen.name])
        raise StudyError(f"{chosen.name} has no search yet: run `{search}`")
    configs = entrants(searched, also=trials or ())
    for line in _introduction(configs, rounds(len(configs), seeds=seeds, total_s=hours * HOUR_S)):
        console.print(line)
    if dry_run:
        return
    budget = Budget(MonotonicClock(), within_hours)
    with at_work(console, bench, [chosen], url) as job:
        kept = RaceRuns(job.database, bench.study_name(chosen))
        work = patient(within(job, budget))
        racing = Race(work, chosen, kept, console.print, configs=configs, seeds=seeds, total_s=hours * HOUR_S)
        places = racing.run()
        interrupted = job.interrupted()
    print_tables(console, _table(places))
    for line in verdict(places):
        console.print(line)
    if budget.is_over():
        console.print(out_of_time(budget, "within"))
        return
    if interrupted:
        console.print("interrupted; whole runs are kept; rerun to resume")
        raise typer.Exit(EXIT_INTERRUPTED)
    if not any(place.mean for place in places):  # no run has told a score
        raise typer.Exit(EXIT_WITHOUT_BEST)


def _introduction(configs: Sequence[Entrant], rounds: Sequence[Round]) -> Iterator[str]:
    """Yield which configs take part, what all of them have in common, and how long each trains in each round."""
    for entrant in configs:
        measured = "".join(f", {name} {figure(value)}" for name, value in entrant.measured.items())
        yield f"{entrant.words}: {entrant.kind}{measured}"
    if shared := {name: value for name, value in configs[0].config.items() if name in configs[0].shared}:
        yield f"each config has {in_words(shared)}"
    for number, turn in enumerate(rounds, start=1):
        seeds = number_of(len(turn.seeds), "seed")
        yield f"round {number}: {turn.configs} configs with {seeds}, {turn.seconds:.0f} s each"


def _table(places: Sequence[Place]) -> Table:
    """Return a table of how the configs stand, with what the search measured of them."""
    metrics = list(dict.fromkeys(name for place in places for name in place.entrant.measured))
    table = Table("why", "score", "±", "runs", "after, s", *metrics, "config", box=box.SIMPLE)
    for place in places:
        mean = place.mean  # None before its first run
        score = [mean.value, mean.error] if mean else [None, None]
        numbers = [*score, *(place.entrant.measured.get(metric) for metric in metrics)]
        score_text, error_text, *measured = ("" if number is None else figure(number) for number in numbers)
        runs = str(mean.runs) if mean else "0"
        cells = [score_text, error_text, runs, f"{place.seconds:.0f}", *measured]
        table.add_row(place.entrant.kind, *cells, place.entrant.words)
    return table
