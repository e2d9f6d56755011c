"""How well `tuner plan --predict` knows a training's memory without a run: sixteen models, three batch sizes, one card.

    python -m benchmarks.memory.without_run [--python PYTHON] [--only-predict] [--models gpt2,t5] >TABLE

The PYTHON needs torch, torchvision and transformers; accelerate's own estimate stands beside where it is there. Nothing
is downloaded. Each training runs alone; what the card has in use beyond an idle card's counts as measured.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from tuner.errors import TrainerError
from tuner.probe import Device, ProbePlan, Slot, mib
from tuner.study import ProbeSpec
from tuner.tools.prediction import predicted_mib

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
    "opt": (4, 16, 48),
    "bart": (8, 32, 64),
    "swin_t": (16, 64, 256),
    "densenet121": (16, 64, 256),
    "qwen2": (2, 8, 24),
    "whisper": (4, 16, 32),
    "regnet_y_8gf": (16, 64, 256),
    "deeplabv3_resnet50": (8, 32, 96),
}
"""Model → batch sizes; the largest fits into 80 GB. Nothing was tuned on the last eight when they were measured."""


def printed(python: str, model: str, batch_size: int, *more: str) -> dict[str, Any]:
    """Return what a run of the trainer prints last; empty where it fails."""
    words = [python, str(TRAINER), "--model", model, "--batch-size", str(batch_size), *more]
    variables = {**os.environ, "CUDA_VISIBLE_DEVICES": ""} if "--estimate" in more else None
    ran = subprocess.run(words, capture_output=True, text=True, check=False, env=variables)
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


def predicted(python: str, model: str, batch_size: int) -> tuple[float, float]:
    """Return the seconds and the MiB of a prediction; no MiB where there is none."""
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        try:
            memory_mib = predicted_mib(plan_of(python, model, batch_size, folder))
        except TrainerError as error:
            sys.stderr.write(f"{model} {batch_size}: {error}\n")
            memory_mib = 0.0
    return time.monotonic() - began_s, memory_mib


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
    models = chosen.models.split(",")
    trainings = [(model, batch_size) for model in models for batch_size in BATCHES[model]]
    with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 4)) as pool:  # beside the measurements, without a card
        predictions = [pool.submit(predicted, chosen.python, *training) for training in trainings]
        estimates = {model: pool.submit(printed, chosen.python, model, 1, "--estimate") for model in models}
        for (model, batch_size), prediction in zip(trainings, predictions, strict=True):
            ran = {} if chosen.only_predict else printed(chosen.python, model, batch_size)
            peaks = [mib(ran.get(name, 0)) for name in ("allocated", "reserved", "used")]
            (took_s, predicted_mib), estimate = prediction.result(), mib(estimates[model].result().get("accelerate", 0))
            numbers = (took_s, predicted_mib, *peaks, estimate)
            print("\t".join([model, str(batch_size), *(f"{number:.0f}" for number in numbers)]), flush=True)
            if predicted_mib and (used := peaks[-1]):
                errors.append(predicted_mib / used - 1)
                others.append(estimate / used - 1)
                shares.append(used / predicted_mib)
    if errors:
        print(f"# median error {100 * median(map(abs, errors)):.1f} %, bias {100 * median(errors):+.1f} %; ", end="")
        print(f"accelerate's median error {100 * median(map(abs, others)):.0f} %")
        ordered = sorted(shares)
        ends = [ordered[round(share * (len(ordered) - 1))] for share in (0.05, 0.5, 0.95)]
        print("# used, as a share of what was predicted: ", end="")
        print(", ".join(f"{end:.3f}" for end in ends), "(5, 50 and 95 % of the trainings)")


if __name__ == "__main__":
    main()
