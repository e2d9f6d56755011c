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
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tuner.trainers.mimickit.trainer import DRIVER

ONCE = Path(__file__).with_name("build_once.py")


def built(num_envs: int, collector: str, *, case: str, device: str) -> dict[str, float]:
    """Build once; give seconds of processor time. Raises CalledProcessError when MimicKit fails, which says why."""
    words = ["--arg_file", f"args/{case}_args.txt", "--engine_config", "data/engines/newton_engine.yaml"]
    words += ["--visualize", "false", "--devices", device, "--master_port", "29531", "--num_envs", str(num_envs)]
    argv = [os.environ["MIMICKIT_PYTHON"], str(ONCE.absolute()), str(DRIVER), collector, *words]
    root = os.environ["MIMICKIT_ROOT"]
    printed = subprocess.run(argv, cwd=root, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(printed.splitlines()[-1])


def main(
    num_envs: Annotated[list[int], typer.Option(help="once for each count")],
    case: Annotated[str, typer.Option()] = "deepmimic_pi_plus_ppo",
    device: Annotated[str, typer.Option()] = "cpu",
) -> None:
    table = Table("environments", "collector", "build, s", "search, s", title=f"{case} on {device}")
    for count in num_envs:
        for collector in ("searching", "spared"):
            seconds = built(count, collector, case=case, device=device)
            table.add_row(f"{count:,}", collector, f"{seconds['build_s']:.1f}", f"{seconds['search_s']:.2f}")
    console = Console(width=120)
    console.print({"cores": os.cpu_count(), "kernel": platform.release()})
    console.print(table)


if __name__ == "__main__":
    typer.run(main)
