"""Lets many workers share a study on SQLite and on PostgreSQL, and restarts the server meanwhile.

    python -m benchmarks.costs.workers

Real worker processes of `tuner optimize --workers N` begin at once on an empty database, and replay a table of 240
configs. The table holds each row of a recorded table of 40 configs six times; a parameter `copy` numbers the copies.
The script prints a Markdown table, and ends with exit code 1 if anything was lost or handed out twice.
"""

import collections
import tempfile
import time
from pathlib import Path

import optuna
import typer
from optuna.trial import FrozenTrial
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.costs.replayed import CONFIGS, TABLE, Server, Studies, config_of, copied, databases

CROWDS = (6, 10)
COPIES = 6
RESTARTED = 6
"""The number of workers beside which the server is stopped once half of the trials have begun."""
AWAY_S = 5.0
COLUMNS = ("database", "workers", "trials", "trials/s", "seconds in all", "handed out twice", "lost", "lock errors")


def main() -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    table, faults = Table(*COLUMNS, "server stopped", "exit code", box=box.MARKDOWN), 0
    with tempfile.TemporaryDirectory() as folder:
        larger = copied(TABLE, COPIES, Path(folder))
        with databases(table=larger) as kinds:
            for kind, (studies, server) in kinds.items():
                for workers in CROWDS:
                    row, wrong = crowd(studies, workers, server if workers == RESTARTED else None)
                    table.add_row(kind, str(workers), *row)
                    faults += wrong
    Console(width=200).print(table)
    raise typer.Exit(1 if faults else 0)


def crowd(studies: Studies, workers: int, server: Server | None) -> tuple[list[str], int]:
    """Run a study with so many workers; return its cells of the table, and how many things went wrong."""
    name, configs, begun_s = f"crowd{workers}", COPIES * CONFIGS, time.monotonic()
    process = studies.begin(name, workers)
    if server:
        restart(server, studies, name, configs // 2)
    said, _ = process.communicate()
    took_s, trials = time.monotonic() - begun_s, studies.trials(name)
    twice = sum(count > 1 for count in collections.Counter(map(config_of, trials)).values())
    lost = configs - sum(one.state.is_finished() for one in trials)
    locks = said.count("lock")
    wrong = twice + lost + locks + said.count("Traceback") + process.returncode
    if wrong:
        typer.echo(said, err=True)
    pace = len(trials) / span_s(trials)
    cells = [len(trials), f"{pace:.1f}", f"{took_s:.0f}", twice, lost, locks]
    return [*map(str, cells), f"{AWAY_S:.0f} s" if server else "no", str(process.returncode)], wrong


def restart(server: Server, studies: Studies, name: str, after: int) -> None:
    """Stop the server once `after` trials have begun, and start it again."""
    while studies.begun(name) < after:
        time.sleep(0.05)
    server.stop()
    time.sleep(AWAY_S)
    server.start()


def span_s(trials: list[FrozenTrial]) -> float:
    """Return the seconds from the first trial's begin to the last trial's end."""
    begun = [one.datetime_start for one in trials if one.datetime_start]
    ended = [one.datetime_complete for one in trials if one.datetime_complete]
    return (max(ended) - min(begun)).total_seconds()


if __name__ == "__main__":
    typer.run(main)
