"""The picture of a file of `tuner scale`: speed-ups and losses. Needs matplotlib (the extra `notebook`)."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

from tuner.scaling.comparing import sized
from tuner.scaling.laws import LOSSES
from tuner.scaling.scaling_table import ScalingRow

mpl.use("Agg")
from matplotlib import pyplot as plt

COLOURS = ("#76839a", "#b0731a", "#4c9a5f", "#8a63a6", "#8a63a6", "#2584ad", "#cf4358", "#cf4358")


def draw(rows: Sequence[ScalingRow], path: Path) -> None:
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
        shares = [100 * row.losses[name].value / row.step_ms.value if name in row.losses else 0.0 for row in several]
        if any(shares):
            starts = [ends[share < 0][place] for place, share in enumerate(shares)]
            right.barh(names, shares, left=starts, color=colour, label=name)
            for place, share in enumerate(shares):
                ends[share < 0][place] += share
    right.set_xlabel("losses, % of the step")
    right.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
