"""Shared by the command-line tests: a study of a tiny real trainer."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tuner.cli.main import main

Tuner = Callable[..., tuple[int, str, str]]

TRAINER = """
import sys, time
sys.path.insert(0, sys.argv[2])
from progress import report
envs, began_s = int(sys.argv[1]), time.monotonic()
for iteration in range(60):
    time.sleep(0.05)
    print("iteration", iteration, flush=True)
    for rank in range(2):
        busy_s = (time.monotonic() - began_s) * envs / 200  # of the time that has really passed
        report(iteration=iteration, rank=rank, samples=envs * (iteration + 1), busy_s=busy_s, score=envs * iteration)
"""


TRAINED_COMMAND = """
import argparse, time
from progress import report
parser = argparse.ArgumentParser()
parser.add_argument("-b", "--batch-size", type=int, default=8)
parser.add_argument("-j", "--workers", type=int, default=0)
parser.add_argument("--grad-accum", type=int, default=1)
parser.add_argument("--rounds", type=int, default=24)
parser.add_argument("--max_steps", type=int)
parser.add_argument("--output_dir")
args = parser.parse_args()
total = args.batch_size * args.grad_accum
for step in range(args.max_steps or args.rounds):
    sum(range(20_000))
    time.sleep(0.02 + 0.06 * (args.grad_accum - 1))
    print(f"step {step} loss {1 / (step + 1):.3f}", flush=True)
    report(iteration=step, samples=total * (step + 1))
"""
"""A script that trains for a moment and reports its samples; `progress.py` is beside it."""


def shorten(study: Path) -> None:
    """Let the study of a test have short probes."""
    text = study.read_text()
    study.write_text(text.replace("iterations: 8, max_seconds: 420", "iterations: 4, window_seconds: 0.2"))


def study_file(folder: Path, **changes: object) -> Path:
    """Write a study of a trainer whose reported busy share grows with num_envs. `changes` replace whole keys.

    The share is a few percent, so that three iterations know it to a point, and a probe is short.
    """
    trainer = folder / "train.py"
    trainer.write_text(TRAINER)
    package = Path(sys.modules["tuner"].__file__ or "").parent
    study = {
        "name": "demo",
        "trainer": {
            "name": "command",
            "options": {
                "command": [sys.executable, str(trainer), "{num_envs}", str(package)],
                "cases": ["walk", "run"],
            },
        },
        "cases": ["walk"],
        "devices": "cpu:2",
        "space": {"num_envs": {"ladder": [8, 16]}},
        "probe": {"iterations": 4, "window_seconds": 0.05},
        **changes,
    }
    path = folder / "demo.yaml"
    with path.open("w") as file:
        YAML(typ="safe").dump(study, file)
    return path


def run_in(folder: Path, *arguments: object) -> None:
    """Run a command line in a folder, for tests that share its result. The command must succeed."""
    with pytest.MonkeyPatch.context() as here:
        here.chdir(folder)
        here.setattr("sys.argv", ["tuner", *map(str, arguments)])
        with pytest.raises(SystemExit, match="0"):
            main()
