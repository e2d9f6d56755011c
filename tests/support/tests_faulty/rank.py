"""One rank of a trainer that trains nothing; it uses only the standard library and `tuner.progress`."""

import json
import os
import sys
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path

from tuner.progress import report

BUILD = -1
"""The seconds that stand for the time before the first iteration."""
SAMPLES = 64
"""The samples that each rank collects in each iteration."""


class Rank:
    """Iterates with its peer, each waiting for the other as ranks do in a collective, without a time limit.

    A fault may change how it goes on.
    """

    def __init__(self, number: int, out_dir: Path, iteration_s: float, barrier: Barrier) -> None:
        self.number = number
        self.out_dir = out_dir
        self.iteration_s = iteration_s
        self.leaves_model = True
        self.report: Callable[[int], None] = self.report_truly
        self._barrier = barrier

    def train(self, iterations: int, before: Callable[[int], None]) -> None:
        """Build, iterate and leave a model; `before` is called before the build and before each iteration."""
        before(BUILD)
        say(f"rank {self.number} has built its environments")
        for iteration in range(iterations):
            before(iteration)
            time.sleep(self.iteration_s)
            self._barrier.wait()
            self.report(iteration)
        if self.leaves_model:
            (self.out_dir / "model.pt").touch()

    def report_truly(self, iteration: int) -> None:
        """Report through `tuner.progress`, and print on rank 0."""
        done = iteration + 1
        report(iteration=iteration, samples=done * SAMPLES, rank=self.number, busy_s=done * self.iteration_s / 2)
        if self.number == 0:
            say(f"|  Iteration | {iteration} |")

    def report_raw(self, **fields: float) -> None:
        """Append a progress record with these fields, whatever they are."""
        record = json.dumps({"rank": self.number, "t_s": time.monotonic()} | fields) + "\n"
        with Path(os.environ["TUNER_PROGRESS"]).open("a", encoding="utf-8") as file:
            file.write(record)


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
