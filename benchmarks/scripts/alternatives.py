"""What people do today to make a training script faster, and `tuner`, all on one script that waits for its data.

    python -m benchmarks.scripts.alternatives --python PYTHON > benchmarks/results/alternatives.md

`--python` is a Python with torch, tqdm, lightning and accelerate. The records of the script come from a store that
answers after 5 ms: `train_sleeping_loader.py`. First each way finds its command. Then plain runs of 20 s measure these
commands in turn, by the side file of the script, because the load of a machine changes. `--work` keeps what was found;
the same command goes on with the ways that are missing.
"""

import argparse
import ast
import inspect
import json
import os
import pty
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from textwrap import dedent

import optuna

from benchmarks.scripts.commands import HERE, ROOT, Place, plain_rate
from tuner.devices.found import describe_machine, open_devices

FLAGS = {"batch-size": 32, "workers": 0, "prefetch-factor": 2}
STUDY, TRIALS = "train_sleeping_loader", 12


def command(**flags: int) -> list[str]:
    """Return the command line of the script: the user's own flags, unless others are given."""
    named = FLAGS | {name.replace("_", "-"): value for name, value in flags.items()}
    words = (f"--{name} {value}" for name, value in named.items())
    return shlex.split(f"python {STUDY}.py --epochs 1000 --answer-ms 5 {' '.join(words)}")


def as_it_is(place: Place) -> list[str]:
    """The user's own command."""
    return command()


def by_hand(place: Place) -> list[str]:
    """The advice of PyTorch's own warning: as many workers as there are cores."""
    return command(workers=int(describe_machine(open_devices("cpu:1"))["cores"]))


def by_lightning(place: Place) -> list[str]:
    """Lightning's `Tuner.scale_batch_size`."""
    return command(batch_size=found(place, "lightning"))


def by_accelerate(place: Place) -> list[str]:
    """accelerate's `find_executable_batch_size`, from 128 on."""
    return command(batch_size=found(place, "accelerate"))


def by_optuna(place: Place) -> list[str]:
    """Optuna alone: an objective around the script, and TPE."""

    def objective(trial: optuna.Trial) -> float:
        workers = trial.suggest_categorical("workers", [0, 2, 4, 8, 16])
        prefetch_factor = trial.suggest_categorical("prefetch_factor", [2, 4, 8])
        flags = command(workers=workers, prefetch_factor=prefetch_factor)
        return plain_rate(flags, place, place.folder / "optuna.tsv") or 0.0

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
    study.optimize(objective, n_trials=TRIALS)
    return command(**study.best_params)


def by_tuner(place: Place) -> list[str]:
    """One command of `tuner`, before the script's own, at a terminal."""
    searched = ("--search", "workers=0,2,4,8,16", "--search", "prefetch_factor=2,4,8")
    words = ("optimize", "--n-trials", str(TRIALS), *searched, "--", *command())
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tuner", *words],
        cwd=place.folder,
        env=place.environ(place.folder / "tuner.tsv") | {"PYTHONPATH": str(ROOT)},
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    with (place.folder / "tuner.log").open("wb") as log, suppress(OSError):  # the end of a terminal is an error
        while piece := os.read(master, 1 << 16):
            log.write(piece)
    if process.wait():
        raise SystemExit((place.folder / "tuner.log").read_text(errors="replace"))
    _, code, shown = place.tuner(place.folder / "plan.tsv", "plan", "--study", STUDY, "--best")
    if code:
        raise SystemExit(shown)
    (place.folder / "best.sh").write_text(shown)
    return ["bash", "best.sh"]


WAYS: dict[str, Callable[[Place], list[str]]] = {
    "the command as it is": as_it_is,
    "by hand: a worker per core": by_hand,
    "Lightning's `scale_batch_size`": by_lightning,
    "accelerate's `find_executable_batch_size`": by_accelerate,
    "Optuna alone, 12 trials": by_optuna,
    "`tuner optimize -- …`, 12 trials": by_tuner,
}
KEPT = "outcomes.json"
WRITTEN: dict[object, str] = {by_lightning: "by_lightning", by_accelerate: "by_accelerate"}
"""The ways that are written in `finders.py` → the function there."""


def found(place: Place, library: str) -> int:
    """Return the batch size that a library's finder finds."""
    words = [str(place.python), str(place.folder / "finders.py"), library]
    shown = subprocess.run(words, capture_output=True, text=True, check=True, cwd=place.folder).stdout
    return int(shown.rpartition("found ")[2])


def lines(way: Callable[[Place], list[str]]) -> int:
    """Return how many lines of code a user writes for a way, without comments and empty lines; 0 for command lines."""
    if way is by_optuna:
        source = inspect.getsource(by_optuna)
    elif (written := WRITTEN.get(way)) is not None:
        tree = ast.parse((HERE / "finders.py").read_text())
        (body,) = (one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == written)
        source = ast.unparse(body)
    else:
        return 0
    (function,) = ast.parse(dedent(source)).body
    assert isinstance(function, ast.FunctionDef)  # noqa: S101 - the source of a function
    return sum(len(ast.unparse(one).splitlines()) for one in function.body[1:])  # without its docstring


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What a way has cost and given."""

    way: str
    lines: int
    spent_s: float
    command: str
    """The training command that was found, as a shell runs it."""
    speeds: list[float] = field(default_factory=list)
    """The samples per second of its plain runs."""
    loads: list[float] = field(default_factory=list)
    """The load average of the machine at the end of each plain run."""


def explored(name: str, place: Place) -> Outcome:
    """Go one way to a command."""
    began_s, way = time.monotonic(), WAYS[name]
    words = way(place)
    spent_s = time.monotonic() - began_s
    shown = (place.folder / words[1]).read_text() if words[0] == "bash" else shlex.join(words)
    return Outcome(way=name, lines=lines(way), spent_s=spent_s, command=shown)


def measured(outcomes: list[Outcome], place: Place, rounds: int) -> None:
    """Run all commands in turn, so that each meets the same changes of load."""
    for number in range(rounds):
        for one in outcomes:
            if len(one.speeds) == number:
                rate = plain_rate(["bash", "-c", one.command], place, place.folder / "plain.tsv")
                one.speeds.append(rate or 0.0)
                one.loads.append(os.getloadavg()[0])
                print(one, file=sys.stderr, flush=True)
                keep(outcomes, place)


def keep(outcomes: list[Outcome], place: Place) -> None:
    """Write what is known so far."""
    (place.folder / KEPT).write_text(json.dumps([asdict(one) for one in outcomes], indent=1))


def flags_of(shown: str) -> str:
    """Return what a command sets: batch size, workers, prefetch factor."""
    words = shlex.split(shown.strip().splitlines()[-1])
    return ", ".join(words[words.index(f"--{name}") + 1] for name in FLAGS)


def page(outcomes: list[Outcome], machine: dict[str, str]) -> str:
    """Return the page of results."""
    own = statistics.mean(outcomes[0].speeds)
    rows = (
        f"| {one.way} | {one.lines} | {one.spent_s:.0f} s | {flags_of(one.command)} "
        f"| {', '.join(f'{speed:.0f}' for speed in one.speeds)} | {statistics.mean(one.speeds) / own:.1f} |"
        for one in outcomes
    )
    loads = [load for one in outcomes for load in one.loads]
    return "\n".join(
        [
            "# What else makes a script faster?",
            "",
            f"{datetime.now(UTC):%Y-%m-%d}, {machine['cpu']}, {machine['cores']} cores that others used too, no GPU. "
            f"The load average was {min(loads):.0f} to {max(loads):.0f} in the plain runs. "
            "`python -m benchmarks.scripts.alternatives` makes this page.",
            "",
            "The script trains a small network on records that a store sends after 5 ms, so it waits for its data.",
            "Lines are those of code that a user writes. The speeds are those of plain runs of 20 s, all ways in turn.",
            "",
            "| way | lines | time | batch size, workers, prefetch factor | samples/s | times |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
            "- **The two finders look for the largest batch that fits into memory.** They leave the loader alone, and",
            "  change what is learnt. On a CPU nothing runs out of memory: Lightning's doubles the batch until one",
            "  holds an epoch, and accelerate's keeps the one with which it begins. A GPU would be full.",
            "- **Optuna alone** finds what its trials measure. A user writes how to start, measure and end the script,",
            "  and says how long a trial is and how many there are. Failures, memory and noise are the user's, too.",
            "- **`tuner`** asks what a printed iteration is; the answer was a batch. It measures more exactly than the",
            "  20 s of a trial of Optuna's, measures the best again, and so takes longer.",
            "- **W&B sweeps** were not run: they need an account. They choose values as Optuna does.",
            "- One script on a CPU shows the way, and no more. A script that does not wait gains less.",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="a Python with the libraries")
    parser.add_argument("--only", action="append", choices=WAYS, help="one way; repeat for more; the first is the base")
    parser.add_argument("--rounds", type=int, default=2, help="plain runs of each command")
    parser.add_argument("--work", type=Path, default=Path("runs/alternatives"), help="a folder; its results are kept")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    for name in ("truth_file.py", "finders.py", f"{STUDY}.py"):
        shutil.copy(HERE / name, args.work)
    place = Place(folder=args.work.absolute(), python=args.python.absolute())
    kept = place.folder / KEPT
    outcomes = [Outcome(**one) for one in json.loads(kept.read_text())] if kept.exists() else []
    for name in args.only or WAYS:
        if name not in {one.way for one in outcomes}:
            outcomes.append(explored(name, place))
            keep(outcomes, place)
            print(outcomes[-1], file=sys.stderr, flush=True)
    measured(outcomes, place, args.rounds)
    print(page(outcomes, describe_machine(open_devices("cpu:1"))))


if __name__ == "__main__":
    main()
