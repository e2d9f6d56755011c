"""Measures what counting inside a training costs: paired processes with and without it, time per step and losses.

    python -m benchmarks.costs.counting [--pairs 20] [--device cpu] > FILE

A step of this training is short, so that a few microseconds show. The pairs start together and wait. Then one process
at a time trains a block of steps; the two of a pair take turns, and which goes first alternates. The time of a step is
that of the fastest block of a process, which leaves out what other programs take of a core. A row for eager mode and,
where a compiler is there, one for `torch.compile`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from tuner.count import counting
from tuner.devices.found import describe_machine, open_devices

TRAINING = """
import json, sys, time
import torch
from torch.utils.data import DataLoader, TensorDataset
device, compiled, blocks, steps = sys.argv[1], sys.argv[2] == "compiled", int(sys.argv[3]), int(sys.argv[4])
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(*(layer for _ in range(4) for layer in (torch.nn.Linear(32, 32), torch.nn.ReLU())))
model.to(device)
run = torch.compile(model) if compiled else model
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = TensorDataset(torch.randn(16 * steps, 32))
steps_us, losses = [], []
def block():
    batches = iter(DataLoader(data, batch_size=16))
    began_s = time.perf_counter()
    for (batch,) in batches:
        optimizer.zero_grad()
        loss = run(batch.to(device)).square().mean()
        loss.backward()
        optimizer.step()
    losses.append(loss.item().hex())
    steps_us.append(1e6 * (time.perf_counter() - began_s) / steps)
block()
print("ready", flush=True)
for _ in range(blocks):
    sys.stdin.readline()
    block()
    print("block", flush=True)
graphs = sum(torch._dynamo.utils.counters["stats"].values()) if compiled else 0
print(json.dumps({"steps_us": steps_us[1:], "losses": losses, "graphs": graphs}), flush=True)
"""
BLOCKS = 30
"""The measured blocks of a process."""
STEPS = 50
"""The steps of a block."""
T_95 = {5: 2.776, 10: 2.262, 20: 2.093, 30: 2.045}
"""The 97.5 % quantile of Student's t for a number of pairs."""
TOGETHER = 5
"""So many pairs get ready at the same time."""


class Training:
    """A process that trains a block of steps each time that it is asked."""

    def __init__(self, device: str, mode: str, *, is_counted: bool) -> None:
        """Start the process.

        Args:
            device: where it trains: `cpu` or `cuda`.
            mode: `eager` or `compiled`.
            is_counted: whether its steps are counted inside.
        """
        self._folder = tempfile.TemporaryDirectory()
        self._is_counted = is_counted
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        env |= counting(Path(self._folder.name), env) if is_counted else {}
        words = [sys.executable, "-c", TRAINING, device, mode, str(BLOCKS), str(STEPS)]
        self._process = subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def wait(self) -> str:
        """Return the next line that the process prints."""
        return self._process.stdout.readline()  # pyright: ignore[reportOptionalMemberAccess]

    def train_block(self) -> None:
        """Let the process train one block, and wait for its end."""
        print(file=self._process.stdin, flush=True)
        if not self.wait():
            raise RuntimeError("a training ended early; its messages stand above")

    def results(self) -> dict[str, Any]:
        """Return the times, losses and graphs of the process that has ended."""
        results = json.loads(self.wait())
        self._process.wait()
        if any(Path(self._folder.name).iterdir()) != self._is_counted:
            raise RuntimeError("the process counts, or not, against what was asked")
        self._folder.cleanup()
        return results


def row(device: str, mode: str, pairs: int) -> str:
    """Return the row of a mode."""
    plain_us: list[float] = []
    more_us: list[float] = []
    equal = 0
    first = Training(device, mode, is_counted=False)  # fills the compiler's cache
    first.wait()
    for _ in range(BLOCKS):
        first.train_block()
    first.results()
    for begin in range(0, pairs, TOGETHER):
        group = [
            [Training(device, mode, is_counted=is_counted) for is_counted in (False, True)]
            for _ in range(begin, min(begin + TOGETHER, pairs))
        ]
        for training in [training for pair in group for training in pair]:
            training.wait()
        for pair in group:
            for block in range(BLOCKS):
                for training in pair if block % 2 else reversed(pair):
                    training.train_block()
            without, counted = (training.results() for training in pair)
            plain_us.append(min(without["steps_us"]))
            more_us.append(min(counted["steps_us"]) - plain_us[-1])
            equal += without["losses"] == counted["losses"] and without["graphs"] == counted["graphs"]
        print(f"{device} {mode}: {len(more_us)} pairs, {fmean(more_us):+.1f} µs", file=sys.stderr, flush=True)
    error = T_95[pairs] * stdev(more_us) / pairs**0.5
    mean = fmean(more_us)
    return (
        f"| {mode} | {pairs} | {fmean(plain_us):.1f} | {mean:+.1f} | {mean - error:+.1f} to {mean + error:+.1f} | "
        f"{equal} of {pairs} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=20, choices=T_95)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--modes", default="eager,compiled")
    given = parser.parse_args()
    machine = describe_machine(open_devices("auto" if given.device == "cuda" else "cpu"))
    print(f"{machine}\n")
    print("| mode | pairs | a step without, µs | more with counting, µs | 95 % interval | equal losses and graphs |")
    print("|---|---|---|---|---|---|", flush=True)
    for mode in given.modes.split(","):
        print(row(given.device, mode, given.pairs), flush=True)


if __name__ == "__main__":
    main()
