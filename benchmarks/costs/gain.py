"""Measures what an ask of `gain` costs in the largest space that it takes: 100,000 configs.

    python -m benchmarks.costs.gain [--trials 10 60 300 1000] [--asks 2]

Each row runs in a process of its own, on a SQLite database with so many measured trials. An ask is an ask and a tell.
"""

import argparse
import random
import tempfile
from collections.abc import Callable

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.costs.scale import add, case_study, fill, in_own_process
from tuner.kept.trial import KeptProbe
from tuner.search.gain.chooser import Gain, by_gain
from tuner.search.gain.prospects import Goal
from tuner.search.verdict import State, Verdict
from tuner.store.database import Database
from tuner.study.space import LADDER, Config, Parameter, Space, launch_digest

STEPS = 10
SPACE = Space(
    (
        Parameter(name=LADDER, values=tuple(32 << step for step in range(STEPS))),
        Parameter(name="backend", values=tuple("abcdefghij")),
        *(Parameter(name=name, values=tuple(range(1, STEPS + 1))) for name in ("workers", "prefetch", "batch")),
    )
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, nargs="+", default=[10, 60, 300, 1000])
    parser.add_argument("--asks", type=int, default=2, help="after the first one")
    options = parser.parse_args()
    table = Table("what", "wall, s", "CPU, s", "peak, MiB", box=box.MARKDOWN, title="gain, 100,000 configs")
    for trials in options.trials:
        with tempfile.TemporaryDirectory() as folder:
            url = f"sqlite:///{folder}/study.db"
            fill(url, trials, SPACE, value)
            first, rest = in_own_process(ours, url, options.asks)
        add(table, f"{trials:,} trials: opened, and the first ask", first)
        add(table, f"{trials:,} trials: each further ask", rest)
    Console().print(table)


def value(config: Config, draw: random.Random) -> float:
    """Return what a config measures: more on higher rungs, one best backend, and a best in the middle of the rest."""
    places = {one.name: one.values.index(config[one.name]) / (STEPS - 1) for one in SPACE.parameters}
    others = sum((places[name] - 0.6) ** 2 for name in ("workers", "prefetch", "batch"))
    return 40.0 + 40.0 * places[LADDER] ** 0.5 + 5.0 * (config["backend"] == "d") - 10.0 * others + draw.gauss(0.0, 0.5)


def ours(url: str) -> Callable[[], object]:
    """the tuner with gain"""
    draw = random.Random(1)
    study = case_study(
        Database(url), SPACE, by_gain(SPACE, Gain(SPACE, goal=Goal(training_hours=1e6)))
    )  # an end that no ask here reaches

    def ask() -> None:
        asked = study.ask(None)
        if asked is None:
            raise SystemExit("nothing is left to ask")
        record = KeptProbe(status="ok", config=asked.config, digest=launch_digest(asked.config))
        study.tell(asked, Verdict(state=State.COMPLETE, status="ok", value=value(asked.config, draw)), record)

    return ask


if __name__ == "__main__":
    main()
