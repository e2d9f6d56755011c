"""What people do today to make a training script faster, and `tuner`, all on one script that waits for its data.

    python -m benchmarks.scripts.alternatives --python PYTHON > benchmarks/results/alternatives.md

`--python` is a Python with torch, tqdm, lightning and accelerate. The records of the script come from a store that
answers after 5 ms: `train_sleeping_loader.py`. The speed of each way is that of its command in
a plain run of 20 s, by the side file of the script.
"""

import argparse
import ast
import inspect
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from textwrap import dedent

import optuna

from benchmarks.scripts.trial import HERE, Place, plain_rate
from tuner.devices.found import describe_machine, open_devices

FLAGS = {"batch-size": 32, "workers": 0, "prefetch-factor": 2}
STUDY = "train_sleeping_loader"


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
    """Optuna alone: an objective around the script, 12 trials of TPE."""

    def objective(trial: optuna.Trial) -> float:
        workers = trial.suggest_categorical("workers", [0, 2, 4, 8, 16])
        prefetch_factor = trial.suggest_categorical("prefetch_factor", [2, 4, 8])
        flags = command(workers=workers, prefetch_factor=prefetch_factor)
        return plain_rate(flags, place, place.folder / "optuna.tsv") or 0.0

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
    study.optimize(objective, n_trials=12)
    return command(**study.best_params)


def by_tuner(place: Place) -> list[str]:
    """One command of `tuner`, before the script's own."""
    searched = ("--search", "workers=0,2,4,8,16", "--search", "prefetch_factor=2,4,8")
    _, code, shown = place.tuner(place.folder / "tuner.tsv", "optimize", *searched, "--", *command())
    if code == 0:
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
    "`tuner optimize -- …`": by_tuner,
}
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
    samples_per_s: float


def tried(name: str, place: Place) -> Outcome:
    """Go one way, then run the command that it has found."""
    began_s, way = time.monotonic(), WAYS[name]
    words = way(place)
    spent_s = time.monotonic() - began_s
    shown = " ".join(words)
    if words[0] == "bash":
        shown = (place.folder / words[1]).read_text().splitlines()[-1]
    rate = plain_rate(words, place, place.folder / "plain.tsv")
    return Outcome(way=name, lines=lines(way), spent_s=spent_s, command=shown, samples_per_s=rate or 0.0)


def flags_of(shown: str) -> str:
    """Return what a command sets: batch size, workers, prefetch factor."""
    words = shlex.split(shown)
    return ", ".join(words[words.index(f"--{name}") + 1] for name in FLAGS)


def page(outcomes: list[Outcome], machine: dict[str, str]) -> str:
    """Return the page of results."""
    own = outcomes[0].samples_per_s
    rows = (
        f"| {one.way} | {one.lines} | {one.spent_s:.0f} s | {flags_of(one.command)} "
        f"| {one.samples_per_s:.0f} | {one.samples_per_s / own:.1f} |"
        for one in outcomes
    )
    return "\n".join(
        [
            "# What else makes a script faster?",
            "",
            f"{datetime.now(UTC):%Y-%m-%d}, {machine['cpu']}, {machine['cores']} cores that others used too, no GPU. "
            "`python -m benchmarks.scripts.alternatives` makes this page.",
            "",
            "The script trains a small network on records that a store sends after 5 ms, so it waits for its data.",
            "Lines are those of code that a user writes. The speed is that of a plain run of 20 s, by a side file.",
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
            "- **W&B sweeps** were not run: they need an account. They choose values as Optuna does.",
            "- One script on a CPU shows the way, and no more. A script that does not wait gains less.",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="a Python with the libraries")
    parser.add_argument("--only", action="append", choices=WAYS, help="one way; repeat for more; the first is the base")
    parser.add_argument("--work", type=Path, default=Path("runs/alternatives"), help="a folder, which is emptied")
    args = parser.parse_args()
    shutil.rmtree(args.work, ignore_errors=True)
    args.work.mkdir(parents=True)
    for name in ("truth_file.py", "finders.py", f"{STUDY}.py"):
        shutil.copy(HERE / name, args.work)
    place = Place(folder=args.work.absolute(), python=args.python.absolute())
    outcomes: list[Outcome] = []
    for name in args.only or WAYS:
        outcomes.append(tried(name, place))
        print(outcomes[-1], file=sys.stderr, flush=True)
    print(page(outcomes, describe_machine(open_devices("cpu:1"))))


if __name__ == "__main__":
    main()
