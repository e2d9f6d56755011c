"""Compares a card's counter of energy with sampled power: idle, busy, and in bursts, over short and long windows.

    python -m benchmarks.costs.energy [--seconds 60] [--card 0]

The card must be free. Needs torch for the work.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median, pstdev
from typing import NamedTuple

import numpy as np
import pynvml

WORK = """
import sys, time, torch
left, right = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
work_s, rest_s = float(sys.argv[1]), float(sys.argv[2])
left @ right
torch.cuda.synchronize()
print("ready", flush=True)
while True:
    until_s = time.monotonic() + work_s
    while time.monotonic() < until_s:
        left @ right
        torch.cuda.synchronize()
    time.sleep(rest_s)
"""
PHASES = {
    "idle": None,
    "busy": (1.0, 0.0),
    "bursts of 0.1 s every 0.3 s": (0.1, 0.2),
    "bursts of 1 s every 2 s": (1.0, 1.0),
}
"""Name → the seconds of work and of rest in turn; None for no work."""
WINDOWS_S = (0.2, 5.0)
FINE_S, USUAL_S = 0.005, 0.1
"""How far apart readings are: as close as they can be, and as a probe takes them."""


class Reading(NamedTuple):
    """What the card says at a moment."""

    t_s: float
    power_w: float
    """What `nvidia-smi` shows: on some cards the mean of the last second."""
    instant_w: float | None
    energy_j: float


def read(card: object, began_s: float) -> Reading:
    """Return what a card says now."""
    (field,) = pynvml.nvmlDeviceGetFieldValues(card, [pynvml.NVML_FI_DEV_POWER_INSTANT])
    known = field.nvmlReturn == pynvml.NVML_SUCCESS
    return Reading(
        time.monotonic() - began_s,
        pynvml.nvmlDeviceGetPowerUsage(card) / 1000,
        field.value.uiVal / 1000 if known else None,
        pynvml.nvmlDeviceGetTotalEnergyConsumption(card) / 1000,
    )


def recorded(card: object, seconds: float) -> list[Reading]:
    """Return the readings of some seconds."""
    began_s, readings = time.monotonic(), list[Reading]()
    while time.monotonic() - began_s < seconds:
        readings.append(read(card, began_s))
        time.sleep(FINE_S)
    return readings


def spaced(readings: Sequence[Reading], every_s: float) -> list[Reading]:
    """Return the readings that are at least so far apart."""
    kept = [readings[0]]
    for reading in readings:
        if reading.t_s - kept[-1].t_s >= every_s:
            kept.append(reading)
    return kept


def compared(readings: Sequence[Reading], window_s: float) -> list[tuple[float, float, float]]:
    """Return the mean power of each window in watts: by the counter, by usual sampling, and by the finest one.

    The counter is read between two of its moves as if it had moved evenly.
    """
    usual = spaced(readings, USUAL_S)
    moves = [later for before, later in pairwise(readings) if later.energy_j != before.energy_j]
    moments_s = [move.t_s for move in moves]
    rows = []
    for begin_s in [place * window_s for place in range(int(readings[-1].t_s / window_s))]:
        fine = [each for each in readings if begin_s <= each.t_s <= begin_s + window_s]
        coarse = [each.power_w for each in usual if begin_s <= each.t_s <= begin_s + window_s]
        instant = [each.instant_w for each in fine if each.instant_w is not None]
        if len(fine) < 2 or not coarse or not moves:
            continue
        if begin_s < moves[0].t_s or begin_s + window_s > moves[-1].t_s:
            continue
        begin_j, end_j = np.interp([begin_s, begin_s + window_s], moments_s, [move.energy_j for move in moves])
        counted_w = float(end_j - begin_j) / window_s
        rows.append((counted_w, fmean(coarse), fmean(instant) if instant else float("nan")))
    return rows


def report(phase: str, readings: Sequence[Reading]) -> None:
    """Print the rows of a phase."""
    moves = [later for before, later in pairwise(readings) if later.energy_j != before.energy_j]
    apart_ms = [1000 * (later.t_s - before.t_s) for before, later in pairwise(moves)]
    print(f"\n{phase}: the counter moves every {median(apart_ms):.0f} ms" if apart_ms else f"\n{phase}: no move")
    print("| window | windows | counter W | sampled W | fine W | sampled/counter | spread | fine/counter | spread |")
    print("|---|---|---|---|---|---|---|---|---|")
    for window_s in WINDOWS_S:
        rows = [row for row in compared(readings, window_s) if row[0] > 0]
        if not rows:
            continue
        counted, sampled, fine = (fmean(row[place] for row in rows) for place in range(3))
        spreads = [100 * pstdev(row[place] / row[0] for row in rows) for place in (1, 2)]
        print(
            f"| {window_s:g} s | {len(rows)} | {counted:.1f} | {sampled:.1f} | {fine:.1f} | {sampled / counted:.4f} | "
            f"{spreads[0]:.1f} % | {fine / counted:.4f} | {spreads[1]:.1f} % |",
            flush=True,
        )


def main() -> None:
    """Record each phase, and print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--card", type=int, default=0)
    chosen = parser.parse_args()
    pynvml.nvmlInit()
    card = pynvml.nvmlDeviceGetHandleByIndex(chosen.card)
    print(f"{pynvml.nvmlDeviceGetName(card)}, driver {pynvml.nvmlSystemGetDriverVersion()}")
    for phase, times in PHASES.items():
        if times is None:
            report(phase, recorded(card, chosen.seconds))
            continue
        words = [sys.executable, "-c", WORK, *map(str, times)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as work:
            try:
                next(iter(work.stdout or ()), None)  # it is ready
                time.sleep(3.0)
                report(phase, recorded(card, chosen.seconds))
            finally:
                work.kill()


if __name__ == "__main__":
    main()
