"""Kills workers, or their parent, by `kill -9` at random moments, on SQLite and on PostgreSQL, and looks what is lost.

    python -m benchmarks.costs.kills --rounds 20

Two real worker processes of `tuner optimize --workers 2` replay a recorded table of 40 configs. A process is killed
once a random number of trials has begun. If it is a worker, the parent starts it again. If it is the parent, `tuner
worker` resumes the study. The exports of the complete study are compared with those of an undisturbed run. The rounds
of both databases and of both victims run side by side. The script prints a Markdown table. It ends with exit code 1 if
anything was lost, or if a process was killed too late.
"""

import collections
import math
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Annotated

import optuna
import psutil
import typer
from optuna.trial import TrialState
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.costs.replayed import CONFIGS, Studies, config_of, databases, interrupted, results
from tuner.probe.units import MINUTE_S

WORKERS = 2
VICTIMS = ("parent", "worker")
END_S = 120.0
LOOK_S = 0.02
"""The seconds between two looks at how many trials have begun."""


def main(
    rounds: Annotated[int, typer.Option(help="Kills per victim and database.")] = 20,
    minutes: Annotated[float, typer.Option(help="Begin no further round after this time.")] = math.inf,
) -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    end_s = time.monotonic() + MINUTE_S * minutes
    totals: dict[tuple[str, str], collections.Counter[str]] = {}

    def rounds_of(kind: str, studies: Studies, victim: str) -> None:
        draw = random.Random(f"{kind} {victim}")
        for number in range(rounds):
            if time.monotonic() < end_s:
                found = one_round(studies, f"{victim}{number}", victim, draw)
                totals.setdefault((kind, victim), collections.Counter()).update(found)
                typer.echo(f"{kind} {victim} {number}: {dict(+collections.Counter(found))}", err=True)

    with databases() as kinds, ThreadPoolExecutor() as pool:
        for studies, _ in kinds.values():
            studies.begin("whole", WORKERS).communicate()
        running = [pool.submit(rounds_of, kind, kinds[kind][0], victim) for kind in kinds for victim in VICTIMS]
        for one in running:
            one.result()
    faults = show(totals)
    raise typer.Exit(1 if faults else 0)


def show(totals: dict[tuple[str, str], collections.Counter[str]]) -> int:
    """Print the counts of each database and victim; return how many things went wrong."""
    names = list(next(iter(totals.values()))) if totals else []
    table = Table("database", "killed", *names, box=box.MARKDOWN)
    for (kind, victim), total in totals.items():
        table.add_row(kind, victim, *(str(total[name]) for name in names))
    Console(width=250).print(table)
    late = sum(total["kills"] - total["kills that hit"] for total in totals.values())
    return late + sum(total[name] for total in totals.values() for name in FAULTS)


def one_round(studies: Studies, name: str, victim: str, draw: random.Random) -> dict[str, int]:
    found = killed(studies, name, victim, draw.randrange(1, CONFIGS - WORKERS), draw)
    same = studies.exported(name) == studies.exported("whole") and studies.best(name) == studies.best("whole")
    return {"kills": 1, **found, "unlike an undisturbed run": int(not same)}


def killed(studies: Studies, name: str, victim: str, after: int, draw: random.Random) -> dict[str, int]:
    """Run a study, kill a process once `after` trials have begun, and run the study to its end; return the counts."""
    parent = studies.begin(name, WORKERS)
    while studies.begun(name) < after and parent.poll() is None:
        time.sleep(LOOK_S)
    workers = workers_of(parent.pid)
    target = psutil.Process(parent.pid) if victim == "parent" or not workers else draw.choice(workers)
    hit = bool(workers) and parent.poll() is None and target.is_running()
    with suppress(psutil.NoSuchProcess):
        target.send_signal(signal.SIGKILL)
    before = results(studies.trials(name))
    parent.communicate()
    left = len(psutil.wait_procs(workers, timeout=END_S)[1])
    code = studies.resume(name) if victim == "parent" else parent.returncode
    trials = studies.trials(name)
    asked = collections.Counter(map(config_of, trials))
    measured = collections.Counter(config_of(one) for one in trials if one.state.is_finished() and not interrupted(one))
    return {
        "kills that hit": int(hit),
        "trials interrupted": sum(map(interrupted, trials)),
        "processes left": left,
        "results lost": len(before.items() - results(trials).items()),
        "still running": sum(one.state == TrialState.RUNNING for one in trials),
        "measured twice": sum(count > 1 for count in measured.values()),
        "begun more than twice": sum(count > 2 for count in asked.values()),
        "wrong exit code": int(code != 0),
    }


FAULTS = (
    *("processes left", "results lost", "still running", "measured twice", "begun more than twice"),
    *("wrong exit code", "unlike an undisturbed run"),
)


def workers_of(pid: int) -> list[psutil.Process]:
    try:
        return [one for one in psutil.Process(pid).children(recursive=True) if "worker" in one.cmdline()]
    except psutil.NoSuchProcess:
        return []


if __name__ == "__main__":
    typer.run(main)
