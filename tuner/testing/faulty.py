"""A scripted trainer: two real processes that train nothing, with one fault injected by its name.

    python -m tuner.testing.faulty killed_rank --out-dir out

Rank 0 is the main process and rank 1 its child. They wait for each other in every iteration as ranks do in a
collective, without a time limit; each reports for itself through `tuner.progress`, and they print what real trainers
print. The moment of the fault is written to `fault_at` in the out dir, in seconds of the monotonic clock.
It imports the standard library alone, and `tuner.progress`.
"""

import argparse
import importlib
import json
import math
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import NoReturn

from tuner.progress import report

BUILD = -1
"""Strikes before the first iteration."""
AT = 4
"""The iteration at which a fault strikes unless it says otherwise."""
ITERATION_S = 0.02
SLOW_ITERATION_S = 0.05
START_UP_S = 3.0
SAMPLES = 64


class Rank:
    """One rank of the run; a fault may change how it goes on."""

    def __init__(self, number: int, out_dir: Path, flood_bytes: int, barrier: Barrier) -> None:
        self.number = number
        self.out_dir = out_dir
        self.flood_bytes = flood_bytes
        self.iteration_s = ITERATION_S
        self.leaves_model = True
        self.report: Callable[[int], None] = self.report_truly
        self._barrier = barrier

    def train(self, fault: "Fault", iterations: int) -> None:
        """Build, iterate, leave a model; the fault strikes where it says."""
        self._say(f"Building on rank {self.number}")
        for iteration in range(BUILD, iterations):
            if self.number in fault.ranks and iteration == fault.at:
                (self.out_dir / "fault_at").write_text(str(time.monotonic()), encoding="ascii")
                fault.strike(self)
            if iteration != BUILD:
                time.sleep(self.iteration_s)
                self._barrier.wait()
                self.report(iteration)
        if self.leaves_model:
            (self.out_dir / "model.pt").touch()

    def report_truly(self, iteration: int) -> None:
        """Report as a healthy rank does, and print on rank 0."""
        seen = iteration + 1
        report(iteration=iteration, samples=seen * SAMPLES, rank=self.number, busy_s=seen * self.iteration_s / 2)
        if self.number == 0:
            self._say(f"|  Iteration | {iteration} |")

    def report_raw(self, **fields: float) -> None:
        """Write a progress record as it is given."""
        with Path(os.environ["TUNER_PROGRESS"]).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"rank": self.number} | fields) + "\n")

    def _say(self, text: str) -> None:
        say(text)


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
