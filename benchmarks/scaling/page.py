"""The tables and the picture of a results page, from a file of `tuner scale`.

    python -m benchmarks.scaling.page benchmarks/results/scaling/two_cpu_ranks.json

It prints the tables as Markdown, and draws a picture beside the file (needs matplotlib: the extra `notebook`). If a
file split.json is beside it, the sentences of that file follow.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from rich import box
from rich.console import Console
from rich.table import Table

from tuner.scaling.losses import LOSSES
from tuner.scaling.results import read
from tuner.scaling.rows import Row, fits, link_table, mean_pct, table
from tuner.scaling.splitting import divisions
from tuner.scaling.subjects import LINKS
from tuner.scaling.words import number, scaling_sentences, sized, split_sentences

mpl.use("Agg")
from matplotlib import pyplot as plt

COLOURS = ("#76839a", "#b0731a", "#4c9a5f", "#8a63a6", "#8a63a6", "#2584ad", "#cf4358", "#cf4358")


def scaling(rows: Sequence[Row]) -> Table:
    heads = ("workload", "scaling", "devices", "route", "samples/s", "ms per step", "speed-up", "efficiency, %")
    shown = Table(*heads, "util, %", "SM, %", "GiB", box=box.MARKDOWN)
    for row in rows:
        peaks = [one.mem_peak_mib for one in row.devices if one.mem_peak_mib is not None]
        util, sm = (mean_pct(row.devices, field) for field in ("util_mean_pct", "sm_mean_pct"))
        shown.add_row(
            *(sized(row), row.scaling, str(row.gpus), row.route or ""),
            *map(number, (row.samples_per_s, row.step_ms, row.speed_up, row.efficiency_pct)),
            *("" if one is None else f"{one:.0f}" for one in (util, sm)),
            f"{max(peaks) / 1024:.1f}" if peaks else "",
        )
    return shown


def losses(rows: Sequence[Row]) -> Table:
    names = [name for name in LOSSES if any(loss.name == name for row in rows for loss in row.losses)]
    shown = Table("workload", "scaling", "devices", "route", "ms per step", *names, box=box.MARKDOWN)
    for row in rows:
        if row.losses:
            found = {
                one.name: f"{one.ms:.3g}" + (f" ± {one.error_ms:.2g}" if one.error_ms else "") for one in row.losses
            }
            cells = (found.get(name, "") for name in names)
            shown.add_row(sized(row), row.scaling, str(row.gpus), row.route or "", number(row.step_ms), *cells)
    return shown


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw the speed-up of each row, and its losses as a share of the step."""
    several = [row for row in rows if row.scaling != "single"][::-1]
    names = [f"{sized(row)}, {row.gpus} x {row.route}, {row.scaling}" for row in several]
    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 1.2 + 0.3 * len(several)), sharey=True)
    left.barh(
        names,
        [row.speed_up.value for row in several],
        xerr=[row.speed_up.error or 0.0 for row in several],
        color=["#2584ad" if row.scaling == "weak" else "#b0731a" for row in several],
    )
    for count in {row.gpus for row in several}:
        left.axvline(count, color="#76839a", linestyle=":")
    left.set_xlabel("speed-up, times one device (blue: weak, brown: strong scaling)")
    ends = {True: [0.0] * len(several), False: [0.0] * len(several)}
    for name, colour in zip(LOSSES, COLOURS, strict=True):
        shares = [sum(100 * one.ms for one in row.losses if one.name == name) / row.step_ms.value for row in several]
        if any(shares):
            starts = [ends[share < 0][place] for place, share in enumerate(shares)]
            right.barh(names, shares, left=starts, color=colour, label=name)
            for place, share in enumerate(shares):
                ends[share < 0][place] += share
    right.set_xlabel("losses, % of the step")
    right.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    path = Path(sys.argv[1])
    console = Console(width=250)
    results = read(path)
    rows = table(results)
    several = any(row.scaling != "single" for row in rows)
    console.print(scaling(rows), *([losses(rows)] if several else []))
    links = link_table(results, LINKS)
    shown = Table("bytes", "devices", "route", "µs per all-reduce", "GB/s per device", box=box.MARKDOWN)
    for one in links:
        size = f"{one.size_bytes:,}"
        shown.add_row(size, str(one.gpus), one.route, number(one.time_us), f"{one.bus_gb_per_s:.3g}")
    if links:
        console.print(shown)
    for line in scaling_sentences(results, rows, fits(rows)):
        console.print(f"- {line}", soft_wrap=True, markup=False, highlight=False)
    if several:
        draw(rows, path.with_suffix(".png"))
    if (split := path.with_name("split.json")).exists():
        divided = read(split)
        for line in split_sentences(divided, divisions(divided)):
            console.print(f"- {line}", soft_wrap=True, markup=False, highlight=False)


if __name__ == "__main__":
    main()
