"""Measures how much of a MimicKit session's start the garbage collector takes.

    python -m benchmarks.costs.building --num-envs 512 --num-envs 4096

Each row is a process of MimicKit's own Python (`MIMICKIT_PYTHON`) in its checkout (`MIMICKIT_ROOT`). The process builds
the environments on one device. The garbage collector is `searching` as usual, or `spared` as in the session's driver.
All seconds are processor time, so other programs on the machine hardly change the result. `search` is the time of one
`gc.collect()` after the build; a session makes this call at the end of each run.

MimicKit's Python runs this same file with `--once`. So the file imports only the standard library.
"""

import argparse
import gc
import json
import os
import platform
import subprocess
import sys
import time
from contextlib import nullcontext
from importlib import import_module
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

DRIVER = Path(__file__).parents[2] / "tuner/trainers/mimickit/driver.py"
SEARCHING, SPARED = "searching", "spared"


def built(num_envs: int, collector: str, *, case: str, device: str) -> dict[str, float]:
    """Build once in a process of MimicKit's Python and return `build_s` and `search_s`, seconds of processor time.

    Raises CalledProcessError when MimicKit fails; MimicKit's own message is then on stderr.
    """
    words = ["--arg_file", f"args/{case}_args.txt", "--engine_config", "data/engines/newton_engine.yaml"]
    words += ["--visualize", "false", "--devices", device, "--master_port", "29531", "--num_envs", str(num_envs)]
    argv = [os.environ["MIMICKIT_PYTHON"], str(Path(__file__).absolute()), "--once", collector, *words]
    root = os.environ["MIMICKIT_ROOT"]
    printed = subprocess.run(argv, cwd=root, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(printed.splitlines()[-1])


def build_once(collector: str, words: list[str]) -> dict[str, float]:
    """Build MimicKit's environments in this process; `words` are arguments of `mimickit/run.py`."""
    driver = ModuleType("driver")
    SourceFileLoader(driver.__name__, str(DRIVER)).exec_module(driver)
    sys.path[0] = "mimickit"
    run = import_module("run")
    args = run.load_args(argv=["run.py", *words])
    (device,) = args.parse_strings(key="devices")
    port, num_envs = (args.parse_int(key=key) for key in ("master_port", "num_envs"))
    import_module("util.mp_util").init(rank=0, num_procs=1, device=device, master_port=port)
    run.set_rand_seed(args=args)
    began_s = time.process_time()
    with driver.kept_for_good() if collector == SPARED else nullcontext():
        env = run.build_env(args=args, num_envs=num_envs, device=device, visualize=False)
    built_s = time.process_time()
    gc.collect()
    searched_s = time.process_time()
    del env  # only now, so that the collector searches through the environments
    return {"build_s": built_s - began_s, "search_s": searched_s - built_s}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-envs", type=int, action="append", required=True, help="once for each count")
    parser.add_argument("--case", default="deepmimic_pi_plus_ppo")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    print(f"{options.case} on {options.device}; {os.cpu_count()} cores, kernel {platform.release()}\n")
    print("| environments | collector | build, s | search, s |\n|---|---|---|---|")
    for count in options.num_envs:
        for collector in (SEARCHING, SPARED):
            seconds = built(count, collector, case=options.case, device=options.device)
            print(f"| {count:,} | {collector} | {seconds['build_s']:.1f} | {seconds['search_s']:.2f} |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--once"]:
        print(json.dumps(build_once(sys.argv[2], sys.argv[3:])))
    else:
        main()
