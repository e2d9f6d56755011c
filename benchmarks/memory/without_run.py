"""How well `tuner plan --predict` knows a training's memory without a run: eight models, three batch sizes, one card.

    python -m benchmarks.memory.without_run [--python PYTHON] [--only-predict] [--models gpt2,t5] >TABLE

The PYTHON needs torch, torchvision and transformers; accelerate's own estimate stands beside where it is there. Nothing
is downloaded. Each training runs alone; what the card has in use beyond an idle card's counts as measured.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from tuner.errors import TrainerError
from tuner.probe import Device, ProbePlan, Slot, mib
from tuner.study import ProbeSpec
from tuner.tools.foretelling import ALLOCATED, CONTEXT_MIB, foretold

TRAINER = Path(__file__).with_name("train_model.py")
BATCHES = {
    "resnet50": (16, 64, 256),
    "convnext_tiny": (16, 64, 256),
    "vit_b_16": (16, 64, 256),
    "efficientnet_v2_s": (16, 64, 192),
    "gpt2": (4, 16, 48),
    "bert": (8, 32, 64),
    "llama": (4, 16, 48),
    "t5": (8, 32, 64),
}
"""Model → batch sizes; the largest fits into 80 GB."""


def printed(python: str, model: str, batch_size: int, *more: str) -> dict[str, Any]:
    """Return what a run of the trainer prints last; empty where it fails."""
    words = [python, str(TRAINER), "--model", model, "--batch-size", str(batch_size), *more]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    try:
        return json.loads(ran.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        sys.stderr.write(f"{model} {batch_size}: {ran.stderr.strip().splitlines()[-1:]}\n")
        return {}


def plan_of(python: str, model: str, batch_size: int, folder: str) -> ProbePlan:
    """Return the plan of a training."""
    devices = (Device(name="cuda:0", model="a card"),)
    return ProbePlan(
        config={},
        argv=(python, str(TRAINER), "--model", model, "--batch-size", str(batch_size)),
        cwd=Path.cwd(),
        env={},
        files={},
        slot=Slot(devices=devices, out_dir=Path(folder) / "probe", limits=ProbeSpec()),
        session_key="",
    )


def main() -> None:
    """Predict and measure each training, and print the errors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--only-predict", action="store_true")
    parser.add_argument("--models", default=",".join(BATCHES))
    chosen = parser.parse_args()
    columns = ("model", "batch", "seconds", "predicted", "allocated", "reserved", "used", "accelerate")
    print("\t".join(columns), flush=True)
    errors, others, shares = list[float](), list[float](), list[float]()
    for model in chosen.models.split(","):
        estimate = mib(printed(chosen.python, model, 1, "--estimate").get("accelerate", 0))
        for batch_size in BATCHES[model]:
            began_s = time.monotonic()
            with tempfile.TemporaryDirectory() as folder:
                try:
                    predicted_mib = foretold(plan_of(chosen.python, model, batch_size, folder))
                except TrainerError as error:
                    sys.stderr.write(f"{model} {batch_size}: {error}\n")
                    continue
            took_s = time.monotonic() - began_s
            ran = {} if chosen.only_predict else printed(chosen.python, model, batch_size)
            peaks = [mib(ran.get(name, 0)) for name in ("allocated", "reserved", "used")]
            numbers = (took_s, predicted_mib, *peaks, estimate)
            print("\t".join([model, str(batch_size), *(f"{number:.0f}" for number in numbers)]), flush=True)
            if used := peaks[-1]:
                errors.append(predicted_mib / used - 1)
                others.append(estimate / used - 1)
                shares.append((used - CONTEXT_MIB) / ((predicted_mib - CONTEXT_MIB) / ALLOCATED))
    if errors:
        print(f"# median error {100 * median(map(abs, errors)):.1f} %, bias {100 * median(errors):+.1f} %; ", end="")
        print(f"accelerate's median error {100 * median(map(abs, others)):.0f} %")
        ordered = sorted(shares)
        ends = [ordered[round(share * (len(ordered) - 1))] for share in (0.05, 0.5, 0.95)]
        print("# beyond CONTEXT_MIB, a byte of tensors takes from the card: ", end="")
        print(", ".join(f"{end:.3f}" for end in ends), "(5, 50 and 95 % of the trainings; 50 % is ALLOCATED)")


if __name__ == "__main__":
    main()
