"""Kills workers at random moments, or restarts the server below them, and counts what the database lost or did twice.

    python -m benchmarks.costs.survival [--url URL] [--kills 20] [--workers 6] [--restarts 6 --restart COMMAND]

A worker asks, reports and tells one trial after another. First, `--kills` workers begin one after another, and end
by `kill -9`. With `--restart`, `--workers` workers then share the study while COMMAND, such as `pg_ctl restart`, runs
`--restarts` times. At the end the script takes back what was dropped and checks every trial.
"""

import argparse
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.costs.scale import case_study
from tuner.kept.trial import KeptProbe
from tuner.search.trials import kept
from tuner.search.verdict import State, Verdict
from tuner.store.database import Database
from tuner.study.space import launch_digest

LIFE_S = 1.5
"""A worker lives this long at most after it has begun."""
SETTLE_S = 10.0
"""Seconds after the last restart, in which a worker that cannot go on would end."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--restart", help="a command that restarts the server")
    parser.add_argument("--restarts", type=int, default=6)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = options.url or f"sqlite:///{folder}/study.db"
        if options.worker:
            work(url)
        table = Table("what", "times", "workers that ended", *CHECKS, box=box.MARKDOWN)
        for _ in range(options.kills):
            kill(start(url), random.uniform(0.0, LIFE_S))
        table.add_row("kill -9", str(options.kills), "", *checked(url))
        if options.restart:
            team = [start(url) for _ in range(options.workers)]
            for _ in range(options.restarts):
                time.sleep(random.uniform(0.0, LIFE_S))
                subprocess.run(shlex.split(options.restart), check=True, stdout=subprocess.DEVNULL)
            time.sleep(SETTLE_S)
            for worker in team:
                kill(worker, 0.0)
            ended = sum(worker.returncode != -signal.SIGKILL for worker in team)
            table.add_row("server restarted", str(options.restarts), str(ended), *checked(url))
    Console(width=160).print(table)


def work(url: str) -> None:
    """Ask, report and tell until something ends this process."""
    study = case_study(Database(url))
    print("ready", flush=True)
    while asked := study.ask(None):
        study.report(asked, 1, 40.0)
        record = KeptProbe(status="ok", config=asked.config, digest=launch_digest(asked.config))
        study.tell(asked, Verdict(state=State.COMPLETE, status="ok", value=50.0), record)


def start(url: str) -> "subprocess.Popen[str]":
    """Start a worker, and wait until it has opened the study."""
    words = [sys.executable, "-m", "benchmarks.costs.survival", "--worker", "--url", url]
    worker = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    if not worker.stdout or worker.stdout.readline() != "ready\n":
        raise SystemExit("a worker could not open the study")
    return worker


def kill(worker: "subprocess.Popen[str]", after_s: float) -> None:
    time.sleep(after_s)
    worker.kill()
    worker.wait()


CHECKS = ("complete", "taken back", "still running", "numbers missing", "configs twice", "without a record")


def checked(url: str) -> list[str]:
    """Take back what was dropped, and count what is wrong with the trials."""
    database = Database(url)
    study = case_study(database)
    taken_back = study.take_back(Path("none")).to_repeat
    trials = database.storage.get_all_trials(database.storage.get_study_id_from_name("bench/walk"))
    states = Counter(trial.state.name for trial in trials)
    complete = [trial for trial in trials if trial.state.name == "COMPLETE"]
    twice = sum(count - 1 for count in Counter(launch_digest(trial.params) for trial in complete).values())
    missing = len(set(range(len(trials))) - {trial.number for trial in trials})
    bare = sum(kept(trial).probe.digest is None for trial in complete)
    database.close()
    return [str(one) for one in (len(complete), taken_back, states["RUNNING"], missing, twice, bare)]


if __name__ == "__main__":
    main()
