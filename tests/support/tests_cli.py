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
