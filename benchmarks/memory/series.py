"""Does memory stay below the bound of a soak? Recorded trainings: 5, 10 and 20 % of each foretell the rest.

    python -m benchmarks.memory.series                   the table
    python -m benchmarks.memory.series record --python TRAINERS/bin/python --side-by-side 4     (about an hour)
    python -m benchmarks.memory.series record --gpu      (about eight minutes on a card)

TRAINERS is an environment with torch, lightning, accelerate, transformers and stable-baselines3. MimicKit runs where
MIMICKIT_ROOT and MIMICKIT_PYTHON say so. The constants of `tuner/search/lasting.py` were fitted to every second kind of
run; the others report, and so do seeds that were recorded later. A seed draws the same lengths in each kind.
"""

import argparse
import json
import lzma
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from statistics import fmean
from tempfile import mkdtemp
from threading import Thread
from typing import Any

import psutil

from benchmarks.memory.pairs import TRAIN
from benchmarks.memory.real import GIVES_BACK, MIMICKIT, REFERENCE, Real
from tuner.devices.cpu import Peaks, data_mib
from tuner.probe.result import DeviceSample, DeviceSummary
from tuner.probe.summaries import RISE, floors, rises, tops
from tuner.search.lasting import PILING_UP, PROVOKED, USUAL, lasts

SERIES = Path(__file__).with_name("series.json.xz")
OTHERS = TRAIN.with_name("others.py")
READ_S, SEEDS, SHARES = 0.1, (0, 1), (0.05, 0.1, 0.2)
Series = list[tuple[float, float, float]]
"""Seconds since the first mark, the memory in use, and the largest so far, in MiB."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A training from its start to its end."""

    name: str
    words: str
    """What stands after Python, with places for the seed, a port and a folder."""
    told: bool = False
    """Whether the run meets what needs most memory at its start: then its user says so."""
    python: str = ""
    cwd: str = ""
    variables: tuple[tuple[str, str], ...] = ()


def hand_made(name: str, flags: str, *, told: bool = False, trainer: str = "loop", size: int = 512) -> Run:
    """Return a run of `train.py`."""
    words = f"{TRAIN} --trainer {trainer} --batch-size {size} --steps 500 --wait-s 0.15 --seed {{seed}} {flags}"
    return Run(name=f"{trainer}, {name}, {size}", words=words, told=told)


def real(pair: Real, steps: int, size: int) -> Run:
    """Return a run of a real trainer."""
    most = size * pair.samples * steps
    words = pair.argv.format(size=size, seed="{seed}", steps=steps, most=most, port="{port}", out="{out}")
    name = f"{pair.trainer}{', given back' if pair.variables else ''}, {size}"
    own = {"python": pair.python, "cwd": pair.copy(), "variables": tuple(pair.variables.items())}
    return Run(name=name, words=words, told=True, **own)


HAND_MADE = [
    *(hand_made("plain", "--condition plain", told=True, size=size) for size in (256, 1024)),
    hand_made("evaluation", "--condition evaluation --every 30"),
    hand_made("evaluation provoked", "--condition evaluation --every 2", told=True),
    hand_made("checkpoints", "--condition checkpoints --every 30 --state-mib 40"),
    *(hand_made(f"buffer {kib} KiB", f"--condition buffer --grow-kib {kib}", told=True) for kib in (15, 50, 150)),
    *(hand_made("lengths", "--condition lengths", size=size) for size in (128, 512, 1024)),
    *(hand_made("lengths", "--condition lengths", trainer=one) for one in ("accelerate", "lightning")),
    hand_made("longest first", "--condition lengths --longest-first", told=True),
    hand_made("lengths and buffer", "--condition both --grow-kib 50"),
    hand_made("longest first and buffer", "--condition both --grow-kib 50 --longest-first", told=True),
]
LIBRARIES = [
    *(
        Run(name=f"gpt, {size}", words=f"{OTHERS} gpt --steps 400 --batch-size {size} --seed {{seed}}")
        for size in (4, 16)
    ),
    Run(name="ppo", words=f"{OTHERS} ppo --steps 40 --seed {{seed}}", told=True),
    Run(name="dqn", words=f"{OTHERS} dqn --steps 250 --seed {{seed}}", told=True),
    Run(name="sac", words=f"{OTHERS} sac --steps 50 --seed {{seed}}", told=True),
]


def cpu_runs() -> list[Run]:
    """Return the runs on the CPU."""
    pairs = [real(REFERENCE, 200, 256), real(GIVES_BACK, 100, 600)]
    return [*HAND_MADE, *LIBRARIES, *pairs, *([real(MIMICKIT, 40, 48)] if MIMICKIT.root else [])]


ON_CARD = [
    *(hand_made("plain", "--condition plain", told=True, size=size) for size in (2000, 8000)),
    *(hand_made("lengths", "--condition lengths", size=size) for size in (1000, 8000)),
    hand_made("lengths", "--condition lengths", trainer="accelerate", size=4000),
    hand_made("longest first", "--condition lengths --longest-first", told=True, size=4000),
    hand_made("compiled", "--condition compiled", size=4000),
    *(
        hand_made(f"buffer {kib} KiB", f"--condition buffer --grow-kib {kib}", told=True, size=4000)
        for kib in (200, 1000)
    ),
    *(hand_made(f"fragments {mib} MiB", f"--condition fragments --block-mib {mib}", size=4000) for mib in (4, 16)),
    hand_made("lengths and buffer", "--condition both --grow-kib 200", size=4000),
    *(
        Run(name=f"gpt, {size}", words=f"{OTHERS} gpt --steps 600 --batch-size {size} --seed {{seed}}")
        for size in (4, 32)
    ),
]
EXPANDABLE = (("PYTORCH_ALLOC_CONF", "expandable_segments:True"),)
SAID = re.compile(r"\b(?:step|iteration)\W+\d", re.IGNORECASE)
WATCH = """
import sys, threading, time
def watch(path):
    import torch
    with open(path, "w", buffering=1) as file:
        while True:
            if torch.cuda.is_initialized():
                file.write(f"{time.monotonic()} {600 + torch.cuda.memory_reserved() / 2**20:.1f}\\n")
            time.sleep(0.1)
threading.Thread(target=watch, args=[sys.argv[1]], daemon=True).start()
import runpy
sys.argv = sys.argv[2:]
sys.path.insert(0, sys.argv[0].rpartition("/")[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Reads what torch holds on a card as often as a probe reads it; 600 MiB stand for what CUDA needs beside it."""


class Recording:
    """One run and its memory so far: that of its largest process, as with a limit of memory."""

    def __init__(self, python: str, run: Run, seed: int, *, gpu: bool, fits: bool) -> None:
        self.run, self.seed, self.gpu, self._fits = run, seed, gpu, fits
        self._folder, self._peaks, self._first_s = Path(mkdtemp()), Peaks(), float("inf")
        self._read: Series = []
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        words = shlex.split(run.words.format(seed=seed, port=port, out=self._folder / "out"))
        watched = ["-c", WATCH, str(self._folder / "card")] if gpu else []
        own = {"TUNER_PROGRESS": str(self._folder / "progress"), "OMP_NUM_THREADS": "1", **dict(run.variables)}
        self.process = subprocess.Popen(
            [run.python or python, *watched, *words],
            cwd=run.cwd or None,
            env={**os.environ, **own},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._last = ""
        self._listener = Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        for line in self.process.stdout or ():
            self._last = line.strip() or self._last
            if SAID.search(line):
                self._first_s = min(self._first_s, time.monotonic())

    def read(self) -> None:
        """Read the memory once."""
        with suppress(psutil.Error):
            root = psutil.Process(self.process.pid)
            found = [data_mib(one.pid, self._peaks) for one in (root, *root.children(recursive=True))]
            if known := [one for one in found if one]:
                self._read.append((time.monotonic(), *max(known)))

    def told(self) -> dict[str, Any] | None:
        """Return what was recorded; None where the run failed."""
        self._listener.join()
        if self.process.returncode:
            print(f"{self.run.name}, {self.seed}: {self._last}", flush=True)
            return None
        with suppress(OSError):
            self._first_s = json.loads((self._folder / "progress").read_text().splitlines()[0])["t_s"]
        if self.gpu:
            rows = [line.split() for line in (self._folder / "card").read_text().splitlines()]
            self._read = [(float(t_s), float(mib), 0.0) for t_s, mib in rows]
        series = [(round(t_s - self._first_s, 2), round(mib, 1), round(peak, 1)) for t_s, mib, peak in self._read]
        where = "GPU" if self.gpu else "CPU"
        own = ", expandable segments" if self.run.variables == EXPANDABLE else ""
        what = {"name": f"{where}: {self.run.name}{own}", "seed": self.seed, "told": self.run.told}
        return {**what, "fits": self._fits, "series": series}


def record(python: str, runs: Sequence[Run], seeds: Sequence[int], aside: int, *, gpu: bool, to: Path) -> None:
    """Run each training with each seed, so many at a time, and write how memory rose."""
    waiting = [(run, seed, place % 2 == 0) for seed in seeds for place, run in enumerate(runs)]
    running: list[Recording] = []
    while waiting or running:
        while waiting and len(running) < aside:
            run, seed, fits = waiting.pop(0)
            running.append(Recording(python, run, seed, gpu=gpu, fits=fits))
        time.sleep(READ_S)
        for one in running:
            one.read()
        for one in [one for one in running if one.process.poll() is not None]:
            running.remove(one)
            if found := one.told():
                with lzma.open(to, "at") as file:
                    file.write(json.dumps(found) + "\n")
                print(f"{one.run.name}, {one.seed}: {found['series'][-1]}", flush=True)


def summary(series: Series, until_s: float, total_mib: float) -> DeviceSummary:
    """Return what a probe that ended then would have kept."""
    samples = [
        DeviceSample(t_s=t_s, device=0, mem_used_mib=mib, mem_peak_mib=peak, mem_total_mib=total_mib)
        for t_s, mib, peak in series
        if t_s <= until_s
    ]
    return DeviceSummary(
        device="d",
        source="s",
        window_s=1,
        util_mean_pct=None,
        mem_total_mib=total_mib,
        mem_rises=rises(samples, 0.0),
        mem_floors=floors(samples, 0.0, until_s),
        mem_tops=tops(samples, 0.0, until_s),
    )


def judged(one: dict[str, Any], share: float, *, told: bool) -> tuple[bool, float] | None:
    """Return whether the largest memory of a run stays below the bound of such a share of it, and its share of that.

    None where the share says nothing.
    """
    series = [(t_s, mib, peak) for t_s, mib, peak in one["series"]]
    end_s, largest = series[-1][0], max(max(mib, peak) for _, mib, peak in series)
    gives_back = any(name in one["name"] for name in ("expandable", "given back"))
    expected = USUAL if not told else PROVOKED if gives_back else PILING_UP
    found = lasts((summary(series, share * end_s, 1.1 * largest),), end_s / 3600, expected)
    return None if found is None else (found.most_mib >= (1 - RISE) * largest, min(1.0, largest / found.most_mib))


def main() -> None:
    """Record, or print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="?", choices=["record"])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--side-by-side", type=int, default=4)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--to", type=Path, default=SERIES, help="a file to which the recordings are added")
    asked = parser.parse_args()
    if asked.what:
        runs = [*ON_CARD, *(replace(one, variables=EXPANDABLE) for one in ON_CARD)] if asked.gpu else cpu_runs()
        record(asked.python, runs, asked.seeds, asked.side_by_side, gpu=asked.gpu, to=asked.to)
        return
    with lzma.open(SERIES, "rt") as file:
        recordings = sorted(map(json.loads, file), key=lambda one: (group(one), one["name"], one["seed"]))
    whole: dict[tuple[str, bool, float], list[tuple[bool, float]]] = defaultdict(list)
    print("| run | of | told | below the bound | share of it, % |")
    print("|---|---|---|---|---|")
    for (which, name), of in groupby(recordings, key=lambda one: (group(one), one["name"])):
        own = list(of)
        for told in (True, False) if own[0]["told"] else (False,):
            found = {share: [it for one in own if (it := judged(one, share, told=told))] for share in SHARES}
            for share, its in found.items():
                whole[which, told, share] += its
            every = [it for its in found.values() for it in its]
            print(f"| {name} | {which} | {'yes' if told else 'no'} | {cells(every)} |")
    for (which, told, share), found in sorted(whole.items()):
        print(f"| all, {100 * share:g} % of a run | {which} | {'yes' if told else 'no'} | {cells(found)} |")


def group(one: dict[str, Any]) -> str:
    """Return what a recording is for: the constants were fitted to every second kind, with the first seeds.

    On the other machine, with torch for CUDA, nothing was tuned.
    """
    if "torch with CUDA" in one["name"]:
        return "another machine"
    return "fitted" if one["fits"] and one["seed"] in SEEDS else "reported"


def cells(found: Sequence[tuple[bool, float]]) -> str:
    """Return how many runs stayed below their bounds, and the mean and the least tenth of their shares."""
    shares = sorted(share for _, share in found)
    least = shares[len(shares) // 10]
    return f"{sum(held for held, _ in found)} of {len(found)} | {100 * fmean(shares):.0f}, {100 * least:.0f}"


if __name__ == "__main__":
    main()
