"""Does a search of NCCL's settings find more than a grid of 20 by hand? Two cards, about nine minutes.

    python -m benchmarks.scaling.nccl --out FOLDER [--cards 2] [--search-minutes 3.7] [--minutes 8]

`tuner optimize --launch nccl` searches for a DDP script that mostly exchanges gradients. Then the script's own command,
what the search recommends, and the grid run plainly in turn, for 300 steps each after a warm-up.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from statistics import fmean

SCRIPT = Path(__file__).with_name("train_comm.py")
VARIABLES = ("NCCL_ALGO", "NCCL_PROTO", "NCCL_MAX_NCHANNELS", "NCCL_BUFFSIZE")
OWN_BUCKET_MB = 25
MIB = 1 << 20
TREE = "allreduce:Tree"
PAIRS = (("Ring", "Simple"), ("Ring", "LL128"), ("Ring", "LL"), (TREE, "Simple"), (TREE, "LL128"))
"""Algorithms and protocols of the grid."""
BUCKETS_MB = (25, 100)
GRID = [
    *(
        {"NCCL_ALGO": name, "NCCL_PROTO": protocol, "bucket_cap_mb": mb}
        for name, protocol in PAIRS
        for mb in BUCKETS_MB
    ),
    *({"NCCL_MAX_NCHANNELS": channels, "bucket_cap_mb": mb} for channels in (4, 8, 16, 32) for mb in BUCKETS_MB),
    *({"NCCL_BUFFSIZE": size, "bucket_cap_mb": 25} for size in (MIB, 16 * MIB)),
]


def own_command(cards: int) -> list[str]:
    """Return the words of the script's own command."""
    words = f"torchrun --standalone --nproc_per_node {cards} train_comm.py --bucket_cap_mb {OWN_BUCKET_MB}"
    return shlex.split(words)


def search(folder: Path, cards: int, minutes: float) -> dict[str, object] | None:
    """Search for the own command; return the settings of the line to copy, or None where there is none."""
    words = ["--launch", "nccl", "--yes", "--name", "nccl", "--hours", f"{minutes / 60:g}", "--", *own_command(cards)]
    done = subprocess.run(
        [sys.executable, "-m", "tuner", "optimize", *words],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    (folder / "search.txt").write_text(done.stdout + done.stderr)
    line = re.search(r"^the command line to copy:\n(.+)", done.stdout, re.MULTILINE)
    if line is None:
        return None
    settings: dict[str, object] = dict(re.findall(rf"\b({'|'.join(VARIABLES)})=(\S+)", line[1]))
    bucket = re.search(r"--bucket_cap_mb[ =](\d+)", line[1])
    return settings | {"bucket_cap_mb": int(bucket[1]) if bucket else OWN_BUCKET_MB}


def samples_per_s(folder: Path, cards: int, settings: dict[str, object]) -> float | None:
    """Return the speed of one plain run; None where it fails."""
    words = [*own_command(cards)[:-1], str(settings.get("bucket_cap_mb", OWN_BUCKET_MB)), "--steps", "300"]
    usual = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    chosen = {name: str(value) for name, value in settings.items() if name in VARIABLES}
    try:
        done = subprocess.run(
            words, cwd=folder, env=usual | chosen, capture_output=True, text=True, timeout=60, check=False
        )
    except subprocess.TimeoutExpired:
        return None
    speed = re.search(r"samples_per_s ([\d.]+)", done.stdout)
    return float(speed[1]) if speed else None


def main() -> None:
    """Search, run the grid, and print a row for each setting, the fastest first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cards", type=int, default=2)
    parser.add_argument("--search-minutes", type=float, default=3.7)
    parser.add_argument("--minutes", type=float, default=8.0)
    args = parser.parse_args()
    end_s = time.monotonic() + 60.0 * args.minutes
    args.out.mkdir(parents=True, exist_ok=True)
    shutil.copy(SCRIPT, args.out)
    recommended = search(args.out, args.cards, args.search_minutes)
    repeated = [("own", {"bucket_cap_mb": OWN_BUCKET_MB}), *([("search", recommended)] if recommended else [])]
    grid = [("grid", settings) for settings in GRID]
    speeds: dict[str, list[float]] = defaultdict(list)
    for which, settings in (*repeated, *grid[:10], *repeated, *grid[10:], *repeated):
        if time.monotonic() > end_s - 12.0:  # a run takes about that long
            print("the time is over; the rest of the grid did not run")
            break
        speed = samples_per_s(args.out, args.cards, settings)
        speeds[f"{which} {settings}"] += [] if speed is None else [speed]
    print("samples/s\truns\tsettings")
    for name, each in sorted(speeds.items(), key=lambda pair: -fmean(pair[1] or [0.0])):
        print(f"{fmean(each):.0f}" if each else "failed", " ".join(f"{speed:.0f}" for speed in each), name, sep="\t")


if __name__ == "__main__":
    main()
