"""What the garbage collector takes of a MimicKit session's start: the same environments built with it and as built now.

    python benchmarks/building.py --num-envs 512 --num-envs 4096

Each row is a process of MimicKit's own Python (`MIMICKIT_PYTHON`) in its checkout (`MIMICKIT_ROOT`) that builds the
environments on one device, as the session's driver does. Seconds are of processor time, so that what else runs on the
machine counts for little. `search` is one `gc.collect()` afterwards, which ends each run in a session.
"""

import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tuner.trainers.mimickit.trainer import DRIVER

BUILD = """
import gc, json, sys, time
from contextlib import nullcontext
from importlib import import_module
from importlib.machinery import SourceFileLoader
driver, spared = sys.argv.pop(1), sys.argv.pop(1) == "spared"
sys.path[0] = "mimickit"
kept_for_good = SourceFileLoader("driver", driver).load_module().kept_for_good
run = import_module("run")
args = run.load_args(argv=sys.argv)
device, num_envs, port = args.parse_string("devices"), args.parse_int("num_envs"), args.parse_int("master_port")
import_module("util.mp_util").init(rank=0, num_procs=1, device=device, master_port=port)
run.set_rand_seed(args=args)
began_s = time.process_time()
with kept_for_good() if spared else nullcontext():
    env = run.build_env(args=args, num_envs=num_envs, device=device, visualize=False)
built_s = time.process_time()
gc.collect()
print(json.dumps({"build_s": built_s - began_s, "search_s": time.process_time() - built_s}))
"""
"""A script for MimicKit's Python: driver, `spared` or `searched`, then MimicKit's own arguments."""


def built(num_envs: int, *, spared: bool, case: str, device: str) -> dict[str, Any]:
    """Build once; give seconds of processor time. Raises CalledProcessError with what MimicKit printed."""
    words = ["--arg_file", f"args/{case}_args.txt", "--engine_config", "data/engines/newton_engine.yaml"]
    words += ["--visualize", "false", "--devices", device, "--master_port", "29531", "--num_envs", str(num_envs)]
    script = ["-c", BUILD, str(DRIVER), "spared" if spared else "searched", *words]
    python, root = os.environ["MIMICKIT_PYTHON"], Path(os.environ["MIMICKIT_ROOT"])
    printed = subprocess.run([python, *script], cwd=root, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(printed.splitlines()[-1])


def main(
    num_envs: Annotated[list[int], typer.Option(help="once for each count")],
    case: Annotated[str, typer.Option()] = "deepmimic_pi_plus_ppo",
    device: Annotated[str, typer.Option()] = "cpu",
) -> None:
    table = Table("environments", "collector", "build, s", "search, s", title=f"{case} on {device}")
    for count in num_envs:
        for spared in (False, True):
            seconds = built(count, spared=spared, case=case, device=device)
            name = "spared" if spared else "as ever"
            table.add_row(f"{count:,}", name, f"{seconds['build_s']:.1f}", f"{seconds['search_s']:.2f}")
    console = Console(width=120)
    console.print({"machine": platform.processor(), "cores": os.cpu_count(), "kernel": platform.release()})
    console.print(table)


if __name__ == "__main__":
    typer.run(main)
