"""Records how the memory of `train.py` rises on the CPU, and how well a tenth of each run foretells the whole.

    python -m benchmarks.memory.series record     (about four minutes)
    python -m benchmarks.memory.series            the table

The runs with an even seed fitted the constants of `tuner/search/lasting.py`; the others, and real recordings of GPUs in
`--traces`, report.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

from tuner.devices.cpu import data_mib
from tuner.probe.result import DeviceSample, DeviceSummary
from tuner.probe.summaries import floors, rises
from tuner.search.lasting import Rising
from tuner.testing.fake_devices import load_recording

HERE = Path(__file__).parent
SERIES = HERE / "series.json"
TOTAL_MIB = 400.0
RUNS = {
    "plain": [],
    "evaluation": ["--every", "30"],
    "checkpoints": ["--every", "30", "--state-mib", "40"],
    "buffer": ["--grow-kib", "150"],
    "slow buffer": ["--grow-kib", "30"],
    "lengths": [],
}
SEEDS = range(2)
STEPS = 300


def record(python: str) -> None:
    """Run each condition with each seed, two at a time, and write how memory rose."""
    waiting = [(name, seed) for name in RUNS for seed in SEEDS]
    running: list[Recording] = []
    done: list[dict[str, object]] = []
    while waiting or running:
        while waiting and len(running) < 2:
            running.append(Recording(python, *waiting.pop(0)))
        time.sleep(0.05)
        for one in running:
            one.read()
        done += [one.told() for one in running if one.process.poll() is not None]
        running = [one for one in running if one.process.returncode is None]
    SERIES.write_text(json.dumps(done).replace('{"name"', '\n{"name"') + "\n")


class Recording:
    """One run and its memory so far."""

    def __init__(self, python: str, name: str, seed: int) -> None:
        self.name, self.seed, self.progress = name, seed, Path(mkdtemp()) / "progress.jsonl"
        words = [
            python,
            str(HERE / "train.py"),
            "--condition",
            name.rpartition(" ")[2],
            "--seed",
            str(seed),
            *RUNS[name],
        ]
        words += ["--batch-size", "512", "--steps", str(STEPS), "--wait-s", "0.02"]
        self.process = subprocess.Popen(words, env={**os.environ, "TUNER_PROGRESS": str(self.progress)})
        self.samples: list[DeviceSample] = []
        self.gaps: dict[int, float] = {}

    def read(self) -> None:
        used = data_mib(self.process.pid, self.gaps)
        if used:
            self.samples.append(
                DeviceSample(t_s=time.monotonic(), device=0, mem_used_mib=used[0], mem_peak_mib=used[1])
            )

    def told(self) -> dict[str, object]:
        marks_s = [json.loads(line)["t_s"] for line in self.progress.read_text().splitlines()]
        self.progress.unlink()
        whole = [[one.t_s - marks_s[0], one.mem_used_mib, one.mem_peak_mib] for one in self.samples]
        kept = [[round(number or 0.0, 2) for number in one] for one in whole]
        return {"name": self.name, "seed": self.seed, "series": kept}


def recorded(traces: Path | None) -> Iterator[tuple[str, bool, list[tuple[float, float, float]], float]]:
    """Yield the name, whether the run fitted, its series of seconds since the first mark and MiB, and all memory."""
    for one in json.loads(SERIES.read_text()):
        yield one["name"], one["seed"] % 2 == 0, one["series"], TOTAL_MIB
    for path in sorted(traces.glob("*.json")) if traces else ():
        run = load_recording(path)
        if not run.marks_s:
            continue
        for device in range(len(run.devices)):
            own = [(s.t_s - run.marks_s[0], s.mem_used_mib or 0.0, 0.0) for s in run.samples if s.device == device]
            yield f"{path.stem}, GPU {device}", False, own, 143771.0


def summary(series: list[tuple[float, float, float]], until_s: float, total_mib: float) -> DeviceSummary:
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
    )


def main() -> None:
    """Record, or print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="?", choices=["record"])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--traces", type=Path)
    asked = parser.parse_args()
    if asked.what:
        record(asked.python)
        return
    inside: dict[bool, list[bool]] = {True: [], False: []}
    print("| run | fitted | after a tenth | grows | rose by then | foretold, 50 % and 95 % | rose in all |")
    print("|---|---|---|---|---|---|---|")
    for name, fitted, series, total_mib in recorded(asked.traces):
        end_s = series[-1][0]
        early = Rising.of(summary(series, end_s / 10, total_mib))
        if early is None:
            continue
        rise, more = early.rise_mib(end_s), max(max(one[1:]) for one in series) - early.now_mib
        half, most = rise[len(rise) // 2], rise[int(0.95 * len(rise))]
        inside[fitted].append(more <= most + 0.0005 * total_mib)
        rose = sum(by for _, by in early.steps)
        words = f"{early.kind} | {early.grows:.2f} | {rose:.1f} | {half:.1f}, {most:.1f} | {more:.1f}"
        print(f"| {name} | {'yes' if fitted else 'no'} | {words} |")
    for fitted, held in inside.items():
        print(f"{'fitted' if fitted else 'reported'}: {sum(held)} of {len(held)} stayed below the 95 % bound")


if __name__ == "__main__":
    main()
