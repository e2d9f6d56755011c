"""Measures what counting inside a training costs: the time of a step with and without it, losses and compiled graphs.

    python -m benchmarks.costs.counting [--device cuda] [--seconds 30] [--pairs 3] > FILE

A process trains blocks of steps. In every second block, counting is taken away. So the two blocks of a pair lie a few
milliseconds apart. The interval is of the mean difference over all pairs without the tenth that is largest and the
tenth that is smallest, by bootstrap; the untrimmed mean stands beside it. On a CPU, the time is that of the training's
own thread, because other programs may hold the core in between. Losses and graphs are compared between pairs of whole
processes. A row for eager mode and one for `torch.compile`.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from tuner.count import counting
from tuner.devices.found import describe_machine, open_devices

TRAINING = Path(__file__).with_name("counted_training.py")
TRIMMED = 0.1
"""This share of the differences is left out at each end: other programs take the core in some blocks."""
RESAMPLES = 1000
NORMAL_95 = 1.96
"""The 97.5 % quantile of the normal distribution."""


def started(device: str, mode: str, seconds: float, folder: str, *, is_counted: bool) -> subprocess.Popen[str]:
    """Start a training whose processes count into a folder, or do not."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    env |= counting(Path(folder), env) if is_counted else {}
    words = [sys.executable, str(TRAINING), device, mode, str(seconds)]
    return subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True)


def results(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Return what a training prints at its end."""
    output, _ = process.communicate()
    if process.returncode:
        raise RuntimeError("a training ended early; its messages stand above")
    return json.loads(output)


def check_counts(folder: str) -> None:
    """Raise an error unless the training in a folder has counted, and no part of it has switched itself off."""
    records = [json.loads(line) for file in Path(folder).iterdir() for line in file.read_text().splitlines()]
    if not any(record["type"] == "count" for record in records) or any(record["type"] == "off" for record in records):
        raise RuntimeError(f"the training was not counted: {records[-3:]}")


def trimmed_mean(values: Sequence[float]) -> float:
    """Return the mean without the smallest and the largest values."""
    cut = int(TRIMMED * len(values))
    return fmean(sorted(values)[cut : len(values) - cut])


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the trimmed mean."""
    source = random.Random(0)
    means = sorted(trimmed_mean(source.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES)]


def equal_pairs(device: str, mode: str, pairs: int) -> int:
    """Return how many pairs of a counted and a plain process have equal losses and graphs."""
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            [started(device, mode, 0, folder, is_counted=is_counted) for is_counted in (False, True)]
            for _ in range(pairs)
        ]
        told = [[results(process) for process in pair] for pair in processes]
        check_counts(folder)
    return sum(plain == counted for plain, counted in told)


def row(device: str, mode: str, seconds: float, pairs: int) -> str:
    """Return the row of a mode."""
    with tempfile.TemporaryDirectory() as folder:
        blocks_us = results(started(device, mode, seconds, folder, is_counted=True))["pairs_us"]
        check_counts(folder)
    more_us = [counted - plain for plain, counted in blocks_us]
    low, high = interval(more_us)
    error = NORMAL_95 * stdev(more_us) / len(more_us) ** 0.5
    return (
        f"| {mode} | {len(more_us)} | {median(plain for plain, _ in blocks_us):.1f} | {trimmed_mean(more_us):+.1f} | "
        f"{low:+.1f} to {high:+.1f} | {fmean(more_us):+.1f} ± {error:.1f} | "
        f"{equal_pairs(device, mode, pairs)} of {pairs} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--modes", default="eager,compiled")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long each mode is measured")
    parser.add_argument("--pairs", type=int, default=3, help="pairs of processes whose losses are compared")
    given = parser.parse_args()
    print(f"{describe_machine(open_devices('auto' if given.device == 'cuda' else 'cpu'))}\n")
    print(
        "| mode | pairs of blocks | a step without, µs | more with counting, µs | 95 % interval | untrimmed | "
        "equal losses and graphs |"
    )
    print("|---|---|---|---|---|---|---|", flush=True)
    for mode in given.modes.split(","):
        print(row(given.device, mode, given.seconds, given.pairs), flush=True)


if __name__ == "__main__":
    main()
