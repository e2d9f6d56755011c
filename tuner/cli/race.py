"""`tuner race`: which of a few configs learns most in the same time."""

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer
from rich import box
from rich.table import Table

from tuner import export
from tuner.cli import options, work
from tuner.cli.screen import print_tables
from tuner.optimizing import waiting_for_workers
from tuner.probe import HOUR_S, MonotonicClock, number_of
from tuner.running.events import out_of_time
from tuner.running.job import Budget, within_budget
from tuner.store.races import RaceRuns
from tuner.tools.racing import Entrant, Place, Race, Round, entrants, rounds, verdict

RaceHours = Annotated[
    float,
    options.number_option("--train-hours", 0.0001, "The hours that all runs train, added up. Start-ups come on top."),
]
Trials = Annotated[
    list[int] | None, typer.Option("--trial", min=0, help="A trial whose config takes part, too; may be repeated.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the configs and the rounds, and train nothing.")]
Seeds = Annotated[int, typer.Option(min=1, help="Runs of each config in each round.")]


def race(
    study: options.Study,
    cases: work.Cases = None,
    train_hours: RaceHours = 1.0,
    seeds: Seeds = 2,
    hours: options.Hours = None,
    trials: Trials = None,
    dry_run: DryRun = False,
    devices: options.Devices = None,
    storage: options.Storage = None,
    runs: options.Runs = options.RUNS,
) -> None:
    """Train a few configs of a search for the same time, and say which learns most; rerun to resume.

    Example: tuner race --study pi_plus --train-hours 1
    """
    console = options.open_console()
    bench, chosen, url, view = work.searched_case(study, cases, "a race", devices=devices, storage=storage, runs=runs)
    configs = entrants(view, also=trials or ())
    for line in _introduction(configs, rounds(len(configs), seeds=seeds, total_s=train_hours * HOUR_S)):
        console.print(line)
    if dry_run:
        return
    work.need_same_devices(bench, view)
    budget = Budget(MonotonicClock(), hours)
    with work.job_on_console(console, bench, [chosen], url) as job:
        kept = RaceRuns(job.database, bench.study_name(chosen))
        waiting_job = waiting_for_workers(within_budget(job, budget))
        racing = Race(
            waiting_job, chosen, kept, console.print, configs=configs, seeds=seeds, total_s=train_hours * HOUR_S
        )
        places = racing.run()
        interrupted = job.interrupted()
    print_tables(console, _table(places))
    for line in verdict(places):
        console.print(line)
    if budget.is_over():
        console.print(out_of_time(budget))
        return
    if interrupted:
        console.print("interrupted; whole runs are kept; rerun to resume")
        raise typer.Exit(work.EXIT_INTERRUPTED)
    if not any(place.mean for place in places):  # no run has reported a score
        raise typer.Exit(work.EXIT_WITHOUT_BEST)


def _introduction(configs: Sequence[Entrant], rounds: Sequence[Round]) -> Iterator[str]:
    """Yield which configs take part, what all of them have in common, and how long each trains in each round."""
    for entrant in configs:
        measured = "".join(f", {name} {export.figure(value)}" for name, value in entrant.measured.items())
        yield f"{entrant.differing}: {entrant.why}{measured}"
    if shared := {name: value for name, value in configs[0].config.items() if name in configs[0].shared}:
        yield f"each config has {export.in_words(shared)}"
    for number, race_round in enumerate(rounds, start=1):
        seeds = number_of(len(race_round.seeds), "seed")
        yield f"round {number}: {race_round.configs} configs with {seeds}, {race_round.seconds:.0f} s each"


def _table(places: Sequence[Place]) -> Table:
    """Return a table of how the configs stand."""
    table = Table("why", "score", "runs", "after, s", "config", box=box.SIMPLE)
    for place in places:
        mean = place.mean  # None before its first run
        score, runs = (export.score_text(mean.value, mean.error), str(mean.runs)) if mean else ("", "0")
        table.add_row(place.entrant.why, score, runs, f"{place.seconds:.0f}", place.entrant.differing)
    return table
