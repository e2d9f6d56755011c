"""Kills six commands by `kill -9` at random moments, and looks what is lost, doubled or left.

    python -m benchmarks.costs.killed --kills 20

A small real trainer with a child process of its own runs on the CPU. Each command is killed, looked at and begun again,
on one study, one race and one file of results. At the end each command runs to its end. Every process that a command
starts carries a mark in its environment, so the script finds what is left anywhere on the machine.

`typed` searches a command with torch that is counted inside and writes over a file of the person. Each `soak` takes the
next config.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

import optuna
import psutil
from rich import box
from rich.console import Console
from rich.table import Table

from tuner.records.case_record import RunRecord, read_claim
from tuner.records.schema import PROBE, RACE, SOAKS, record_of
from tuner.study.study_file import load

TRAINER = """
import os, sys, time
envs, seed, ranks = map(int, sys.argv[1:4])
is_first = all(os.fork() for _ in range(ranks))  # each child works as a rank
number = 0
while number < 100000:
    time.sleep(0.02)
    sum(range(100000))
    number += 1
    if is_first:
        print(f"iter {number} samples {number * envs} return {envs * (1 - 0.99 ** number) + seed}", flush=True)
"""
TYPED = """
import argparse, pathlib, time, torch
parser = argparse.ArgumentParser()
parser.add_argument("--pause", type=int, default=1)
pause_s = parser.parse_args().pause / 100
pathlib.Path("model.pt").write_text("of a probe")
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(4096, 8)), batch_size=4)
while True:
    for (batch,) in loader:
        time.sleep(pause_s)
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
"""
OWN = "of the person"
"""What the file holds that a trainer of `typed` writes over."""
STUDY = """
name: killed
trainer:
  name: command
  options:
    command: "{python} trainer.py {num_envs} {seed} {ranks} --rate {rate}"
    progress: ['iter (?P<iteration>\\d+) samples (?P<samples>\\d+) return (?P<return>\\S+)']
devices: cpu:1
objective: samples_per_s
space:
  num_envs: {ladder: [80, 70, 60, 50, 40, 30, 20, 10]}
  rate: {range: [1, 10]}
probe: {iterations: 4, min_iterations: 4, window_seconds: 0.5, max_seconds: 60}
search: {trials: 80, sampler: random}
pruner: {name: none}
"""
SIZES = ",".join(str(size) for size in range(10, 81, 5))
COMMANDS = {
    "optimize": ("optimize", "--study", "study.yaml"),
    "race": ("race", "--study", "study.yaml", "--train-hours", "0.02", "--trial", "1", "--trial", "2"),
    "scale": ("scale", "--study", "study.yaml", "--devices", "cpu:2", "--sizes", SIZES, "--out", "scale.json"),
    "init": (
        "init",
        "--seconds",
        "5",
        "--force",
        "--search",
        "rate=1,2",
        "--",
        sys.executable,
        "trainer.py",
        *"801",
        "--rate",
        "1",
    ),
    "soak": ("soak", "--study", "study.yaml", "--minutes", "0.1"),
    "typed": (
        "optimize",
        "--search",
        "pause=" + ",".join(map(str, range(1, 25))),
        "--devices",
        "cpu:1",
        "--",
        sys.executable,
        "typed.py",
    ),
}
LIFE_S = {"soak": 9.0, "typed": 50.0}
"""A command is killed this long after its first trainer has begun, at most."""
USUAL_LIFE_S = 6.0
"""`LIFE_S` of the other commands."""
EARLY = 0.2
"""The share of kills that do not wait for a trainer."""
MARK = "KILLED_BENCHMARK"
LEFT_S = 20.0
"""After so many seconds a process that is still there counts as left."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--commands", nargs="+", default=list(COMMANDS), choices=list(COMMANDS))
    options = parser.parse_args()
    table = Table(
        "killed", "times", "while a trainer ran", "results", "lost", "doubled", "left", "exit code", box=box.MARKDOWN
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        temporary(folder).mkdir()
        (folder / "trainer.py").write_text(TRAINER)
        (folder / "typed.py").write_text(TYPED)
        (folder / "model.pt").write_text(OWN)
        (folder / "study.yaml").write_text(STUDY)
        for command in COMMANDS:
            if command in options.commands:
                table.add_row(command, *map(str, attacked(folder, command, options.kills)))
        shutil.rmtree(temporary(folder))
    Console(width=160).print(table)


def attacked(folder: Path, command: str, kills: int) -> tuple[int, ...]:
    """Kill a command so many times, and let it end; return what was found."""
    if command in ("race", "soak") and not (folder / "runs/killed/study.db").exists():
        start(folder, "optimize").wait()
    found, lost, training, left = results(folder, command), 0, 0, 0
    for kill in range(kills):
        process = start(folder, command, kill)
        if random.random() > EARLY:
            wait_for(partial(is_training_or_over, process))
        time.sleep(random.uniform(0.0, LIFE_S.get(command, USUAL_LIFE_S)))
        training += training_of(process)
        process.kill()
        process.wait()
        left += remaining()
        before, found = found, results(folder, command)
        lost += sum((before - found).values())
        print(f"{command} {kill}: {sum(found.values())} results, {left} left", file=sys.stderr, flush=True)
    code = start(folder, command).wait()
    left += remaining() + sum(1 for _ in temporary(folder).glob("tuner-*"))
    before, found = found, results(folder, command)
    lost += sum((before - found).values()) + unfinished(folder, command)
    doubled = sum(count - 1 for count in found.values())
    return kills, training, sum(found.values()), lost, doubled, left, code


def start(folder: Path, command: str, number: int = 0) -> "subprocess.Popen[bytes]":
    changes = ["--set", f"num_envs={10 * (number % 8 + 1)}"] if command == "soak" else []
    words = [sys.executable, "-m", "tuner", *COMMANDS[command], *changes]
    with (folder / f"{command}.txt").open("ab") as out:
        environment = os.environ | {MARK: str(folder), "PYTHONPATH": str(Path.cwd()), "TMPDIR": str(temporary(folder))}
        return subprocess.Popen(words, cwd=folder, env=environment, stdout=out, stderr=out, stdin=subprocess.DEVNULL)


def temporary(folder: Path) -> Path:
    """Return the folder of the commands' temporary files, in which nothing of the tuner is left in the end."""
    return folder.with_name(f"{folder.name}-temporary")


def marked() -> list[psutil.Process]:
    """Return the processes that a command of this script has started, directly or not."""
    found = []
    for one in psutil.process_iter():
        with suppress(psutil.Error):
            if MARK in one.environ() and one.status() != psutil.STATUS_ZOMBIE:
                found.append(one)
    return found


def training_of(process: "subprocess.Popen[bytes]") -> bool:
    """Return whether a trainer of this command runs."""
    for one in marked():
        with suppress(psutil.Error):
            words = one.cmdline()
            if {"trainer.py", "typed.py"} & {*words} and "tuner" not in words and one.pid != process.pid:
                return True
    return False


def is_training_or_over(process: "subprocess.Popen[bytes]") -> bool:
    return training_of(process) or process.poll() is not None


def wait_for(is_so: Callable[[], bool], seconds: float = LEFT_S) -> None:
    end_s = time.monotonic() + seconds
    while not is_so() and time.monotonic() < end_s:
        time.sleep(0.1)


def remaining() -> int:
    """Wait until no process is left; return how many are there in the end, and end them."""
    wait_for(lambda: not marked())
    still = marked()
    for one in still:
        with suppress(psutil.Error):
            one.kill()
    return len(still)


def results(folder: Path, command: str) -> Counter[Hashable]:
    """Return what is kept, and how often: configs of a search, runs of a race, points of a scale, a study file."""
    return Counter(RESULTS[command](folder))


def unfinished(folder: Path, command: str) -> int:
    """Return how many trials still run, or how many runs are claimed, once the command has ended."""
    if command in ("optimize", "soak", "typed"):
        name = "typed" if command == "typed" else "killed"
        running = sum(not trial.state.is_finished() for trial in study(folder, name).trials)
        return running + ((folder / "model.pt").read_text() != OWN)
    return sum(bool(read_claim(one)) for one in study(folder).user_attrs.values()) if command == "race" else 0


def study(folder: Path, name: str = "killed") -> optuna.Study:
    return optuna.load_study(study_name=f"{name}/command", storage=f"sqlite:///{folder}/runs/{name}/study.db")


def ended(folder: Path, name: str = "killed") -> list[optuna.trial.FrozenTrial]:
    """Return the trials that have a value; none before there is a study."""
    file = folder / f"runs/{name}/study.db"
    if not file.exists() or f"{name}/command" not in optuna.get_all_study_names(f"sqlite:///{file}"):
        return []
    return study(folder, name).get_trials(states=[optuna.trial.TrialState.COMPLETE])


def searched(folder: Path) -> Iterable[Hashable]:
    return [tuple(sorted(trial.params.items())) for trial in ended(folder) if SOAKS not in trial.user_attrs]


def soaked(folder: Path) -> Iterable[Hashable]:
    return [tuple(sorted(trial.params.items())) for trial in ended(folder) if SOAKS in trial.user_attrs]


def typed(folder: Path) -> Iterable[Hashable]:
    """Return the study file, which must be whole, and the probes; a search may measure a config again."""
    return [*drafted(folder), *(str(trial.user_attrs[PROBE]) for trial in ended(folder, "typed"))]


def raced(folder: Path) -> Iterable[Hashable]:
    kept = [record_of(RunRecord, value) for name, value in study(folder).user_attrs.items() if name.startswith(RACE)]
    return [(tuple(sorted(run.config.items())), run.seed, run.seconds) for run in kept if run]


def scaled(folder: Path) -> Iterable[Hashable]:
    if not (file := folder / "scale.json").exists():
        return []
    points = json.loads(file.read_text())["points"]
    return [(one["workload"], one["size"], one["mode"], *one["gpus"], one["route"], one["beside"]) for one in points]


def drafted(folder: Path) -> Iterable[Hashable]:
    """Return the study file; it must be whole."""
    return [load(str(file)).name for file in (folder / "studies").glob("*.yaml")]


RESULTS: dict[str, Callable[[Path], Iterable[Hashable]]] = {
    "optimize": searched,
    "race": raced,
    "scale": scaled,
    "init": drafted,
    "soak": soaked,
    "typed": typed,
}


if __name__ == "__main__":
    main()
