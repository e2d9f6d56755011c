"""Everything that `tuner scale` measures on this machine, in at most nine minutes a call.

    python -m benchmarks.scaling.machine --out FOLDER

- Several devices: all workloads over each route (NAME.json), then a split beside a second load on the first device
  (NAME_split.json).
- One device: each workload with many sizes (NAME.json). It also shows how `--split` is refused.

The same command goes on where an earlier call stopped, with the same FOLDER. Exit code 0: all is measured; 3: there was
no more time, so call again; any other code is that of the command that failed.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from tuner.devices.found import open_devices

SPLIT_S = 150.0
"""The time that is kept for the split."""
START_S = 20.0
"""With less time than this, nothing more is begun."""
MORE_TIME = 3
INTERRUPTED, REFUSED = 130, 2
GPU_SIZES = {
    "ppo": "512,1024,2048,4096,8192,16384",
    "fusion": "64,128,256,512,1024,2048,4096",
    "voxelize": "65536,262144,1048576,2097152,4194304,16777216",
    "pipeline": "16,32,64,128,256",
}
GPU_SIDE, CPU_SIDE = 4096, 512
BETWEEN_LOOKS = 20
"""The products between two looks at the clock: a tenth of a second of work on an H200."""
CPU_SIZES = {"ppo": "16,32,64", "fusion": "8,16,32", "voxelize": "16384,65536,131072", "pipeline": "8,16"}


class Machine:
    """Calls the tuner until the time is over, and keeps what it prints beside the results."""

    def __init__(self, out: Path, common: tuple[str, ...], limit_s: float) -> None:
        self._out, self._common = out, common
        self._end_s = time.monotonic() + limit_s
        out.mkdir(parents=True, exist_ok=True)

    def scale(self, *words: str, into: str, keep_s: float = 0.0, refused: bool = False) -> None:
        """Run `tuner scale`, and leave `keep_s` of the time. Ends the script where the command did not end well."""
        left_s = self._end_s - keep_s - time.monotonic()
        if left_s < START_S:
            print("no more time; call again", flush=True)
            sys.exit(MORE_TIME)
        code = self._run(("scale", *words, *self._common, "--out", str(self._out / f"{into}.json")), into, left_s)
        if code not in {0, *([REFUSED] if refused else [])}:
            sys.exit(MORE_TIME if code == INTERRUPTED else code)

    def _run(self, words: tuple[str, ...], into: str, limit_s: float) -> int:
        print("$ tuner", *words, flush=True)
        begin_s = time.monotonic()
        command = [sys.executable, "-m", "tuner", *words]
        at_once = {**os.environ, "PYTHONUNBUFFERED": "1"}
        pipe, both = subprocess.PIPE, subprocess.STDOUT
        log = (self._out / f"{into}.txt").open("a")
        with log, subprocess.Popen(command, stdout=pipe, stderr=both, text=True, env=at_once) as running:
            told_to_end = False
            for line in running.stdout or ():
                log.write(line)
                print(line, end="", flush=True)
                if time.monotonic() - begin_s > limit_s and not told_to_end:
                    running.terminate()  # it keeps and shows what it has measured
                    told_to_end = True
        print(f"exit code {running.returncode} after {time.monotonic() - begin_s:.0f} s", flush=True)
        return running.returncode


def several(machine: Machine, name: str, device: str) -> None:
    """Measure all workloads over each route, then a split beside a second load."""
    machine.scale(into=name, keep_s=SPLIT_S)
    load = [sys.executable, "-m", "benchmarks.scaling.machine", "--load", device]
    with subprocess.Popen(load, stdout=subprocess.PIPE, text=True) as second:
        try:
            print(f"second load on {device}:", *_first_line(second), flush=True)
            machine.scale("fusion", "voxelize", "--split", "--shared", into=f"{name}_split")
        finally:
            second.kill()


def work(device: str, seconds: float) -> None:
    """Load a device: matrix products without a pause, until the time is over."""
    torch.set_num_threads(1)
    side = GPU_SIDE if device != "cpu" else CPU_SIDE
    left, right, product = (torch.randn(side, side, device=device) for _ in range(3))
    end_s = time.monotonic() + seconds
    print("working", flush=True)
    while time.monotonic() < end_s:
        for _ in range(BETWEEN_LOOKS):
            torch.mm(left, right, out=product)
        if device != "cpu":
            torch.cuda.synchronize(device)


def _first_line(program: subprocess.Popen[str]) -> Iterator[str]:
    if program.stdout is not None:
        yield program.stdout.readline().strip()


def single(machine: Machine, name: str, *, gpu: bool) -> None:
    """Measure each workload with many sizes."""
    for workload, sizes in (GPU_SIZES if gpu else CPU_SIZES).items():
        machine.scale(workload, "--sizes", sizes, into=name)
    machine.scale("fusion", "--split", into=f"{name}_refused", refused=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling.machine")
    parser.add_argument("--out", type=Path, default=Path("machine"))
    parser.add_argument("--load", metavar="DEVICE", help="only load this device, as a neighbour would")
    parser.add_argument("--name", default="here", help="the name of the results, such as two_h200")
    parser.add_argument("--seconds", default="2", help="the window of each measurement")
    parser.add_argument("--limit", type=float, default=530.0, help="the seconds of this call")
    parser.add_argument("--devices", default="auto", help="as `tuner scale --devices`")
    parser.add_argument("--runs", default="runs")
    given = parser.parse_args()
    if given.load:
        work(given.load, 2 * SPLIT_S)
        return
    devices = open_devices(given.devices).devices
    common = ("--seconds", given.seconds, "--runs", given.runs, "--devices", given.devices)
    machine = Machine(given.out, common, given.limit)
    gpu = devices[0].is_gpu
    if len(devices) > 1:
        several(machine, given.name, "cuda:0" if gpu else "cpu")
    else:
        single(machine, given.name, gpu=gpu)
    print("all is measured", flush=True)


if __name__ == "__main__":
    main()
