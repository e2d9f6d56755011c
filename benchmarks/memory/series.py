"""Does memory stay below the bound of a soak? Recorded trainings: 5, 10 and 20 % of each foretell the rest.

    python -m benchmarks.memory.series

`series.json.xz` holds a line of JSON for each recording: its name, its seed, whether the run meets what needs most
memory at its start, whether the constants were fitted to its kind, and the memory. The constants of
`tuner/search/memory_growth.py` were fitted to every second kind of run; the others report, and so do seeds that were
recorded later. A seed draws the same lengths in each kind.
"""

import json
import lzma
from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

from tuner.probe.result import DeviceSample, DeviceSummary
from tuner.probe.summaries import RISE, memory_parts, memory_rises
from tuner.search.memory_growth import PILING_UP, PROVOKED, USUAL, forecast_memory

SERIES = Path(__file__).with_name("series.json.xz")
SEEDS, SHARES = (0, 1), (0.05, 0.1, 0.2)
Series = list[tuple[float, float, float]]
"""Seconds since the first mark, the memory in use, and the largest so far, in MiB."""


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
        util_mean_pct=None,
        mem_total_mib=total_mib,
        mem_rises=memory_rises(samples, 0.0),
        mem_floors=tuple(map(min, memory_parts(samples, 0.0, until_s))),
        mem_tops=tuple(map(max, memory_parts(samples, 0.0, until_s))),
    )


def judged(one: dict[str, Any], share: float, *, told: bool) -> tuple[bool, float] | None:
    """Return whether the largest memory of a run stays below the bound of such a share of it, and its share of that.

    None where the share says nothing.
    """
    series = [(t_s, mib, peak) for t_s, mib, peak in one["series"]]
    end_s, largest = series[-1][0], max(max(mib, peak) for _, mib, peak in series)
    gives_back = any(name in one["name"] for name in ("expandable", "given back"))
    expected = USUAL if not told else PROVOKED if gives_back else PILING_UP
    found = forecast_memory((summary(series, share * end_s, 1.1 * largest),), end_s / 3600, expected)
    return None if found is None else (found.most_mib >= (1 - RISE) * largest, min(1.0, largest / found.most_mib))


def main() -> None:
    """Print the table."""
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
