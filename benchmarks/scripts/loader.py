"""Probes one config of a script that waits for its loader ten times, and compares each value with one long run.

    python -m benchmarks.scripts.loader [--python PYTHON] [--decodes] [--workers 8] [--seconds 120]

Works on the CPU and on one GPU, without a network; it needs torch, tqdm, psutil and, with `--decodes`, pillow. The
truth is the side file of the long run, from the moment on at which the loader's first queue is used up. The page says
how many probes hold it within twice the error that they claim.
"""

import argparse
import os
import shlex
import shutil
import sys
import time
from pathlib import Path
from statistics import fmean, stdev

from benchmarks.scripts.judged import read_told, read_truth
from benchmarks.scripts.trial import HERE, Place, plain_run
from tuner.devices.found import describe_machine, open_devices
from tuner.probe.units import duration

BATCH, PREFETCHED, QUEUE_S = 32, 2, 10.0
"""The batch; what each worker prefetches; after so many seconds of training the first queue is used up."""
SLEEPS = "train_sleeping_loader.py --batch-size 32 --epochs 1 --records 500000 --answer-ms 25 --workers"
DECODES = "train_decoding_loader.py -b 32 --epochs 1 --images 500000 --print-freq 1 -j"


def study(command: str, devices: str, pattern: str) -> str:
    """Return the study file of one config."""
    return "\n".join(
        [
            "name: loader",
            f"trainer: {{name: command, options: {{command: '{command} {{workers}}', progress: {pattern},",
            f"  samples_per_iteration: {BATCH}}}}}",
            f"devices: '{devices}'",
            "objective: samples_per_s",
            "space: {workers: {choices: [WORKERS]}}",
            "probe: {iterations: 8, max_seconds: 120}",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="a Python with torch")
    parser.add_argument("--decodes", action="store_true", help="the loader decodes images instead of waiting")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--probes", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=120.0, help="the length of the long run")
    parser.add_argument("--work", type=Path, default=Path("runs/loader"))
    args = parser.parse_args()
    began_s, folder = time.monotonic(), args.work.absolute()
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "studies").mkdir(parents=True)
    for file in ("truth_file.py", "train_sleeping_loader.py", "train_decoding_loader.py"):
        shutil.copy(HERE / file, folder)
    devices = "auto" if open_devices("auto").devices[0].is_gpu else "cpu:1"
    place, command = (
        Place(folder=folder, python=args.python.absolute()),
        f"python {DECODES if args.decodes else SLEEPS}",
    )
    pattern = r"['\[ *(?P<iteration>\d+)/\d+\]  eta']" if args.decodes else "tqdm"
    text = study(command, devices, pattern).replace("WORKERS", str(args.workers))
    (folder / "studies/loader.yaml").write_text(text)
    rows: list[tuple[float, float]] = []
    for _ in range(args.probes):
        _, _, shown = place.tuner(folder / "try.tsv", "try", "--study", "loader")
        told = read_told(shown)
        print(told, file=sys.stderr, flush=True)
        rows += [(told.value, told.error or 0.0)] if told.value else []
    plain_run(shlex.split(f"{command} {args.workers}"), place, folder / "run.tsv", QUEUE_S + args.seconds)
    truth = read_truth((folder / "run.tsv").read_text())
    begin_s = truth.first_s + QUEUE_S
    true = truth.rate(begin_s, min(begin_s + args.seconds, truth.last_s))
    held = sum(abs(value - true) <= 2 * error for value, error in rows)
    machine = describe_machine(open_devices(devices))
    print(f"{machine.get('gpus') or machine['cpu']}, load average {os.getloadavg()[0]:.0f}: `{command} {args.workers}`")
    print(f"The long run: {true:.1f} samples/s over {args.seconds:.0f} s.")
    print(f"Probes: {', '.join(f'{value:.1f} ± {error:.1f}' for value, error in rows)}.")
    values = [value for value, _ in rows]
    print(f"Mean {fmean(values):.1f}, standard deviation {stdev(values):.1f}.")
    print(f"{held} of {args.probes} within twice the claimed error; {duration(time.monotonic() - began_s)} in all.")


if __name__ == "__main__":
    main()
