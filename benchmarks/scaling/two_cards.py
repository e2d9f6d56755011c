"""Everything that `tuner scale` measures on two cards: all workloads, and a split beside a second load on one card.

python -m benchmarks.scaling.two_cards --out FOLDER
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

LOAD_S = 400.0
"""Longer than the split may take; the load is ended with it."""
SPLIT_LIMIT_S = 150.0


def tuner(*words: str, limit_s: float) -> str:
    """Run a command of the tuner, show what it prints as it comes, and return it."""
    print("$ tuner", *words, flush=True)
    begin_s = time.monotonic()
    command = [sys.executable, "-m", "tuner", *words]
    wide = {**os.environ, "COLUMNS": "180"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=wide) as running:
        assert running.stdout is not None  # noqa: S101 - a pipe was asked for
        lines: list[str] = []
        told_to_end = False
        for line in running.stdout:
            lines.append(line)
            print(line, end="", flush=True)
            if time.monotonic() - begin_s > limit_s and not told_to_end:
                running.terminate()  # it keeps and shows what it has measured
                told_to_end = True
    print(f"exit code {running.returncode} after {time.monotonic() - begin_s:.0f} s", flush=True)
    return "".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling.two_cards")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", default="2", help="the window of each measurement")
    parser.add_argument("--limit", type=float, default=390.0, help="seconds for the scaling; the split takes up to 150")
    parser.add_argument("--runs", default="runs")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    common = ("--seconds", given.seconds, "--runs", given.runs)
    scaled = tuner("scale", *common, "--out", str(given.out / "scaling.json"), limit_s=given.limit)
    (given.out / "scaling.txt").write_text(scaled)
    load = [sys.executable, "-m", "benchmarks.scaling.load", "--card", "0", "--seconds", str(LOAD_S)]
    with subprocess.Popen(load, stdout=subprocess.PIPE, text=True) as second:
        assert second.stdout is not None  # noqa: S101 - a pipe was asked for
        print("second load on card 0:", second.stdout.readline(), end="", flush=True)
        words = ("scale", "fusion", "voxelize", "--split", "--shared", *common)
        split = tuner(*words, "--out", str(given.out / "split.json"), limit_s=SPLIT_LIMIT_S)
        second.kill()
    (given.out / "split.txt").write_text(split)


if __name__ == "__main__":
    main()
