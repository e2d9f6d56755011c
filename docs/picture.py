"""Draw docs/found.png: the utilisation that a real search measured, against the device-seconds it had used.

    python docs/picture.py        # needs matplotlib: pip install -e '.[notebook]'

The search is the committed one of deepmimic_pi_plus_ppo on two H200s; its `trials.tsv` is the export of the `study.db`
beside it. The predecessor's three probes come from its `predecessor.log`. The README beside both describes the runs.
"""

from pathlib import Path

import matplotlib as mpl
import pandas as pd

mpl.use("Agg")
from matplotlib import pyplot as plt

HERE = Path(__file__).parent
RESULTS = HERE.parent / "benchmarks/results/pi_plus_auto_two_h200"
CASE = "deepmimic_pi_plus_ppo"
DEVICES = 2


def search(results: Path = RESULTS) -> pd.DataFrame:
    """Return the search's trials in order: `util` (%), `measured`, `cards`, and `device_s` at their end."""
    trials = pd.read_csv(results / "trials.tsv", sep="\t")
    trials = trials[trials["case"] == CASE].reset_index(drop=True)
    return pd.DataFrame(
        {
            "util": trials["min_avg_util"],
            "measured": trials["measured"],
            "cards": trials["measured_on"],
            "device_s": DEVICES * trials["total_s"].cumsum(),
        }
    )


def predecessor(results: Path = RESULTS) -> pd.DataFrame:
    """Return the predecessor's probes in order: `outcome`, `util` (%) over the window, `device_s` at their end."""
    lines = (results / CASE / "predecessor.log").read_text(encoding="utf-8").splitlines()
    cells = [line.split(" | ") for line in lines if line.startswith(("hiutil | ", "default | "))]
    return pd.DataFrame(
        {
            "outcome": [row[2] for row in cells],
            "util": [float(row[6]) for row in cells],
            "device_s": pd.Series([float(row[4]) for row in cells]).cumsum(),
        }
    )


def draw(path: Path) -> None:
    """Draw both into a picture."""
    ours, theirs = search(), predecessor()
    read = ours.dropna(subset=["util"])
    ended = theirs[theirs["outcome"] == "ok"]
    figure, axes = plt.subplots(figsize=(8, 3.6), dpi=110)
    axes.step(read["device_s"], read["util"].cummax(), where="post", color="tab:blue", label="tuner: best so far")
    for measured, face in (("warm", "white"), ("cold", "tab:blue")):
        some = read[read["measured"] == measured]
        label = {"warm": "probe in a session", "cold": "its best, by the plain command"}[measured]
        axes.plot(some["device_s"], some["util"], "o", color="tab:blue", markerfacecolor=face, label=label)
    axes.plot(
        [*ended["device_s"], theirs["device_s"].iloc[-1]],
        [*ended["util"].cummax(), ended["util"].max()],
        "s-",
        color="tab:red",
        label="predecessor: best so far",
    )
    axes.axhline(ended["util"].max(), color="tab:red", linewidth=0.8, linestyle=":")
    moved = ours["device_s"][ours["cards"].ne(ours["cards"].shift(-1))].iloc[0]
    axes.axvline(moved, color="grey", linewidth=0.8, linestyle="--")
    axes.annotate("resumed on another host", (moved, 36), xytext=(4, 0), textcoords="offset points", color="grey")
    axes.set(xlabel="device-seconds on two H200s", ylabel="min_avg_util, %", ylim=(30, 100), xlim=(0, None))
    axes.legend(loc="lower right", fontsize=8, bbox_to_anchor=(1, 0.12))
    figure.tight_layout()
    figure.savefig(path)


if __name__ == "__main__":
    draw(HERE / "found.png")
