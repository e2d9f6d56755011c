"""Kills workers and their parent at random moments, and lets many workers share a study, on SQLite and on PostgreSQL.

    python -m benchmarks.costs.workers --rounds 20

Every worker is a real process of `tuner optimize --workers`, with a real database. Probes are replayed from a recorded
table, so that a run takes seconds and an undisturbed run has known results. After each kill the same command runs again
until the study is complete. The script prints Markdown tables and ends with exit code 1 if anything was lost.
"""

import collections
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import optuna
import psutil
import typer
from optuna.trial import TrialState
from rich import box
from rich.console import Console
from rich.table import Table
from sqlalchemy.exc import SQLAlchemyError

sys.path.append(str(Path(__file__).parents[2] / "tests" / "support"))
from tests_postgresql import Server, stoppable_server

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "benchmarks/tables/pi_plus_two_h200/deepmimic_pi_plus_ppo.parquet"
CASE = "deepmimic_pi_plus_ppo"
STUDY = """
name: {name}
trainer: {{name: mimickit, root: ., python: python3}}
cases: ["*"]
space:
  num_envs: {{ladder: [1024]}}
probe: {{warm: false}}
pruner: {{name: none}}
search: {{sampler: random, trials: 200}}
"""
END_S = 120.0
SEED = 23


@dataclass(kw_only=True)
class Studies:
    """A folder with studies that share a kind of database."""

    folder: Path
    storage: str | None
    """The URL of a PostgreSQL database; None for SQLite files."""

    def write(self, name: str) -> None:
        (self.folder / f"{name}.yaml").write_text(STUDY.format(name=name))

    def start(self, name: str, workers: int) -> "subprocess.Popen[str]":
        words = ["optimize", "--study", f"{name}.yaml", "--replay", str(TABLE), "--workers", str(workers)]
        return subprocess.Popen(
            [sys.executable, "-m", "tuner", *words],
            cwd=self.folder,
            env=os.environ | ({"TUNER_STORAGE": self.storage} if self.storage else {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def trials(self, name: str) -> list[optuna.trial.FrozenTrial]:
        url = self.storage or f"sqlite:///{self.folder}/runs/{name}-replay/study.db"
        try:
            return optuna.load_study(study_name=f"{name}/{CASE}", storage=url).get_trials()
        except (KeyError, SQLAlchemyError):  # the run was killed before it began the study
            return []


def config_of(trial: optuna.trial.FrozenTrial) -> str:
    return json.dumps(trial.params, sort_keys=True)


def results(trials: list[optuna.trial.FrozenTrial]) -> Mapping[str, tuple[str, float | None]]:
    """Return config → state and value of the trials that are over and were not interrupted."""
    over = [one for one in trials if one.state.is_finished() and not interrupted(one)]
    return {config_of(one): (one.state.name, one.value) for one in over}


def interrupted(trial: optuna.trial.FrozenTrial) -> bool:
    return trial.state == TrialState.FAIL and "interrupted" in json.dumps(trial.user_attrs, default=str)


def workers_of(pid: int) -> list[psutil.Process]:
    try:
        return [one for one in psutil.Process(pid).children(recursive=True) if "worker" in one.cmdline()]
    except psutil.NoSuchProcess:
        return []


def wait_for(processes: list[psutil.Process]) -> int:
    """Wait for processes to end; return how many are left."""
    return len(psutil.wait_procs(processes, timeout=END_S)[1])


def killed(studies: Studies, name: str, victim: str, after_s: float, draw: random.Random) -> dict[str, int]:
    """Run a study, kill -9 the parent or one worker, and run it to its end; return what went wrong, as counts."""
    parent = studies.start(name, 3)
    time.sleep(after_s)
    workers = workers_of(parent.pid)
    before = (
        results(studies.trials(name)) if studies.storage or (studies.folder / f"runs/{name}-replay").exists() else {}
    )
    target = psutil.Process(parent.pid) if victim == "parent" or not workers else draw.choice(workers)
    hit = parent.poll() is None and target.is_running()
    if hit:
        target.send_signal(signal.SIGKILL)
    parent.communicate()
    left = wait_for(workers)
    again = studies.start(name, 3)
    again.communicate()
    trials = studies.trials(name)
    asked = collections.Counter(map(config_of, trials))
    finished = collections.Counter(config_of(one) for one in trials if not interrupted(one) and one.state.is_finished())
    return {
        "hit": int(hit),
        "processes left": left,
        "lost": len(before.items() - results(trials).items()),
        "RUNNING left": sum(one.state == TrialState.RUNNING for one in trials),
        "measured twice": sum(count > 1 for count in finished.values()),
        "asked more than twice": sum(count > 2 for count in asked.values()),
        "wrong exit": int(again.returncode != 0),
    }


@contextmanager
def databases() -> Iterator[dict[str, tuple[Studies, Server | None]]]:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other, stoppable_server() as server:
        yield {
            "SQLite": (Studies(folder=Path(one), storage=None), None),
            "PostgreSQL": (Studies(folder=Path(other), storage=server.url), server),
        }


def main(rounds: Annotated[int, typer.Option(help="Kills per victim and database.")] = 10) -> None:
    console, draw, faults = Console(width=140), random.Random(SEED), 0
    kills = Table("database", "victim", "kills", box=box.MARKDOWN)
    crowds = Table("database", "workers", "what", box=box.MARKDOWN)
    with databases() as kinds:
        for kind, (studies, server) in kinds.items():
            studies.write("whole")
            began_s = time.monotonic()
            studies.start("whole", 3).communicate()
            whole_s, expected = time.monotonic() - began_s, results(studies.trials("whole"))
            for victim in ("parent", "worker"):
                total: collections.Counter[str] = collections.Counter()
                for number in range(rounds):
                    name = f"{victim}{number}"
                    studies.write(name)
                    found = killed(studies, name, victim, draw.uniform(0.3, 1.0) * whole_s, draw)
                    found["unlike the undisturbed run"] = int(results(studies.trials(name)) != expected)
                    total.update(found)
                if not kills.columns[3:]:
                    for name in total:
                        kills.add_column(name)
                kills.add_row(kind, victim, str(rounds), *map(str, total.values()))
                faults += sum(count for name, count in total.items() if name != "hit")
            for workers, name in ((6, "six"), (10, "ten")):
                studies.write(name)
                began_s = time.monotonic()
                process = studies.start(name, workers)
                if server and workers == 6:
                    time.sleep(whole_s)
                    server.stop()
                    time.sleep(5.0)
                    server.start()
                said, _ = process.communicate()
                taken_s, trials = time.monotonic() - began_s, studies.trials(name)
                asked = collections.Counter(map(config_of, trials))
                spent = [one for one in trials if one.datetime_start and one.datetime_complete]
                first = min(one.datetime_start for one in spent if one.datetime_start)
                last = max(one.datetime_complete for one in spent if one.datetime_complete)
                finished = sum(one.state.is_finished() for one in trials)
                twice = sum(count > 1 for count in asked.values())
                wrong = twice + (len(expected) - finished) + ("lock" in said) + ("Traceback" in said)
                crowds.add_row(
                    kind,
                    str(workers),
                    f"{finished} trials in {taken_s:.0f} s, {finished / (last - first).total_seconds():.1f} trials/s; "
                    f"exit code {process.returncode}, {twice} configs handed out "
                    f"twice, {'' if 'lock' in said else 'no '}lock error"
                    + ("; the server stopped and started in the middle" if server and workers == 6 else ""),
                )
                faults += wrong
    console.print(kills)
    console.print(crowds)
    raise typer.Exit(1 if faults else 0)


if __name__ == "__main__":
    typer.run(main)
