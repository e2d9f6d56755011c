"""Everything that `tuner scale` measures on this machine, in at most nine minutes a call.

    python -m benchmarks.scaling.machine --out FOLDER

- Several devices: all workloads over each route (NAME.json).
- One device: each workload with many sizes (NAME.json).

The same command goes on where an earlier call stopped, with the same FOLDER. Exit code 0: all is measured; 3: there was
no more time, so call again; any other code is that of the command that failed.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from tuner.devices.found import open_devices

START_S = 20.0
"""With less time than this, nothing more is begun."""
MORE_TIME = 3
INTERRUPTED = 130
GPU_SIZES = {"ppo": "512,1024,2048,4096,8192,16384"}
CPU_SIZES = {"ppo": "16,32,64"}


class Machine:
    """Calls the tuner until the time is over, and keeps what it prints beside the results."""

    def __init__(self, out: Path, common: tuple[str, ...], limit_s: float) -> None:
        self._out, self._common = out, common
        self._end_s = time.monotonic() + limit_s
        out.mkdir(parents=True, exist_ok=True)

    def scale(self, *words: str, into: str) -> None:
        """Run `tuner scale`. Ends the script where the command did not end well."""
        left_s = self._end_s - time.monotonic()
        if left_s < START_S:
            print("no more time; call again", flush=True)
            sys.exit(MORE_TIME)
        code = self._run(("scale", *words, *self._common, "--out", str(self._out / f"{into}.json")), into, left_s)
        if code:
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


def single(machine: Machine, name: str, *, gpu: bool) -> None:
    """Measure each workload with many sizes."""
    for workload, sizes in (GPU_SIZES if gpu else CPU_SIZES).items():
        machine.scale(workload, "--sizes", sizes, into=name)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling.machine")
    parser.add_argument("--out", type=Path, default=Path("machine"))
    parser.add_argument("--name", default="here", help="the name of the results, such as two_h200")
    parser.add_argument("--seconds", default="2", help="the window of each measurement")
    parser.add_argument("--limit", type=float, default=530.0, help="the seconds of this call")
    parser.add_argument("--devices", default="auto", help="as `tuner scale --devices`")
    parser.add_argument("--runs", default="runs")
    given = parser.parse_args()
    devices = open_devices(given.devices).devices
    common = ("--seconds", given.seconds, "--runs", given.runs, "--devices", given.devices)
    machine = Machine(given.out, common, given.limit)
    gpu = devices[0].is_gpu
    if len(devices) > 1:
        machine.scale(into=given.name)
    else:
        single(machine, given.name, gpu=gpu)
    print("all is measured", flush=True)


if __name__ == "__main__":
    main()
