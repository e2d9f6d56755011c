"""Measures what counting inside a training costs: paired processes with and without it, time per step and losses.

    python -m benchmarks.costs.counting [--pairs 20] [--device cpu] > FILE

A step of this training is short, so that a few microseconds show. The two processes of a pair run one after the other;
which goes first alternates. The time of a step is the median over blocks of steps. A row for eager mode and, where a
compiler is there, one for `torch.compile`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean, median, stdev

from tuner.count import counting
from tuner.devices.found import describe_machine, open_devices

TRAINING = """
import json, sys, time
import torch
from torch.utils.data import DataLoader, TensorDataset
device, compiled, blocks, steps = sys.argv[1], sys.argv[2] == "compiled", int(sys.argv[3]), int(sys.argv[4])
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(*(layer for _ in range(4) for layer in (torch.nn.Linear(256, 256), torch.nn.ReLU())))
model.to(device)
run = torch.compile(model) if compiled else model
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = TensorDataset(torch.randn(64 * steps, 256))
took, losses = [], []
for _ in range(blocks + 2):
    batches = iter(DataLoader(data, batch_size=64))
    began_s = time.perf_counter()
    for (batch,) in batches:
        optimizer.zero_grad()
        loss = run(batch.to(device)).square().mean()
        loss.backward()
        optimizer.step()
    losses.append(loss.item().hex())
    took.append((time.perf_counter() - began_s) / steps)
graphs = sum(torch._dynamo.utils.counters["stats"].values()) if compiled else 0
print(json.dumps({"steps_us": [1e6 * seconds for seconds in took[2:]], "losses": losses, "graphs": graphs}))
"""
BLOCKS, STEPS = 30, 100
"""The measured blocks of a process, and the steps of a block."""
T_95 = 2.093
"""The 97.5 % quantile of Student's t for 20 pairs."""


def told(device: str, mode: str, *, is_counted: bool) -> Mapping[str, object]:
    """Return what one process has told of its blocks."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        env |= counting(Path(folder), env) if is_counted else {}
        words = [sys.executable, "-c", TRAINING, device, mode, str(BLOCKS), str(STEPS)]
        run = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
        if run.returncode:
            raise RuntimeError(run.stderr[-500:])
        if any(Path(folder).iterdir()) != is_counted:
            raise RuntimeError("the process counts, or not, against what was asked")
    return json.loads(run.stdout.splitlines()[-1])


def row(device: str, mode: str, pairs: int) -> str:
    """Return the row of a mode."""
    differences: list[float] = []
    plain: list[float] = []
    alike = 0
    for pair in range(pairs):
        order = (False, True) if pair % 2 else (True, False)
        by = {is_counted: told(device, mode, is_counted=is_counted) for is_counted in order}
        without, counted = (median(by[key]["steps_us"]) for key in (False, True))  # pyright: ignore[reportArgumentType]
        plain.append(without)
        differences.append(counted - without)
        alike += by[False]["losses"] == by[True]["losses"] and by[False]["graphs"] == by[True]["graphs"]
    error = T_95 * stdev(differences) / len(differences) ** 0.5
    mean = fmean(differences)
    return (
        f"| {mode} | {pairs} | {fmean(plain):.1f} | {mean:+.1f} | {mean - error:+.1f} to {mean + error:+.1f} | "
        f"{alike} of {pairs} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=20)
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
