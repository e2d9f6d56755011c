"""Measures what stopping probes early saves, and which good configs it costs, for each pruner.

    python -m benchmarks.search.pruning --table benchmarks/tables/pi_plus_two_h200/deepmimic_pi_plus_ppo.parquet

The project's own loop probes the configs of a table that have a value, in random order and in simulated time, with each
pruner in turn. The data are recorded series of iterations. A probe also ends as in any study: as soon as its value is
known precisely, or lies four standard errors below the best. A config is good if the table has it within 3 % of the
best. A good config is lost if its probe was stopped.
"""

import random
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import optuna
import typer
from rich import box
from rich.console import Console
from rich.table import Table as Shown

from tuner.export.recorded_table import Table
from tuner.kept.trial import PRUNED
from tuner.probe.metrics import value
from tuner.probe.probe_plan import ProbePlan
from tuner.probe.protocols import Stop
from tuner.probe.result import ProbeResult
from tuner.replay.replaying import ReplayedProber, replay_bench
from tuner.running.events import Event, ProbeEnded
from tuner.running.loop import optimise
from tuner.running.workbench import Job, record
from tuner.store.database import Database
from tuner.study.space import PATIENCE, Config, config_digest
from tuner.study.spec import PrunerSpec

GOOD = 0.97
PRUNERS = {
    "none: all to their end": None,
    "none: clear losers end": PrunerSpec(name="none"),
    "median": PrunerSpec(name="median"),
    "hyperband": PrunerSpec(name="hyperband"),
    **{f"hyperband_patient, patience {patience}": PrunerSpec(patience=patience) for patience in (1, 3)},
}
HEADS = ("pruner", "window, GPU-s", "saved, %", "good configs lost, %", "lost per 1,000 GPU-s saved", "best lost, %")


@dataclass(slots=True)
class Tally:
    """Watches the probes of a prober, adds up their windows and collects the stopped configs."""

    prober: ReplayedProber
    window_s: float = 0.0
    stopped: frozenset[str] = frozenset()
    last_s: float = 0.0
    """The window of the newest probe."""

    def probe(self, plan: ProbePlan, stop: Stop) -> ProbeResult:
        """Probe once."""
        result = self.prober(plan, stop)
        self.last_s = result.window_s or 0.0
        return result

    def __call__(self, event: Event) -> None:
        """Take an event in."""
        if not isinstance(event, ProbeEnded) or event.confirms:
            return
        self.window_s += self.last_s
        if event.status == PRUNED:
            self.stopped |= {config_digest(event.config)}


class Ground:
    """A table, and the way a study runs on it."""

    def __init__(self, table: Table, study: str) -> None:
        self._table = table
        bench = replay_bench(table, study)
        space = {name: spec for name, spec in bench.spec.space.items() if name != PATIENCE}
        self._bench = replace(bench, spec=bench.spec.model_copy(update={"space": space, "constraints": {}}))
        self.values: dict[str, float] = {}
        for config in table.configs:
            row = table.find(config)
            number = value(row.result, table.header.objective) if row else None
            if number is not None:
                self.values[config_digest(config)] = number
        self._configs = [config for config in table.configs if config_digest(config) in self.values]
        self.devices = len(table.header.devices)

    @property
    def good(self) -> set[str]:
        least = GOOD * max(self.values.values())
        return {digest for digest, number in self.values.items() if number >= least}

    @property
    def best(self) -> str:
        return max(self.values, key=self.values.__getitem__)

    def run(self, pruner: PrunerSpec | None, seed: int, folder: Path) -> Tally:
        """Probe all configs in the order of the seed."""
        source = random.Random(seed)
        configs: list[Config] = source.sample(self._configs, len(self._configs))
        spec = self._bench.spec.model_copy(update={"pruner": pruner or PrunerSpec(name="none")})
        bench = replace(self._bench, spec=spec)
        tally = Tally(ReplayedProber(self._table, self._table.header.objective, noise=source))
        with closing(Database(f"sqlite:///{folder / f'{seed}.db'}")) as database:
            job = Job(
                bench=bench,
                database=database,
                probe=tally.probe,
                watcher=tally,
                interrupted=lambda: False,
                trials=len(configs),
                purpose=replace(record(configs), competing=pruner is not None),
                open_session=lambda: tally.prober.open_session,
            )
            optimise(job, bench.trainer.cases())
        return tally


def row(name: str, ground: Ground, tallies: Sequence[Tally], whole_s: float) -> list[str]:
    """Return the row that compares searches with a pruner with those that stop nothing early."""
    spent_s, searches = sum(one.window_s for one in tallies), len(tallies)
    saved_gpu_s = ground.devices * (whole_s - spent_s)
    lost = sum(len(one.stopped & ground.good) for one in tallies)
    return [
        name,
        f"{ground.devices * spent_s / searches:,.0f}",
        f"{100 * (1 - spent_s / whole_s):.1f}",
        f"{100 * lost / (searches * len(ground.good)):.1f}",
        f"{1000 * lost / saved_gpu_s:.2f}" if saved_gpu_s > 0 else "",
        f"{100 * sum(ground.best in one.stopped for one in tallies) / searches:.0f}",
    ]


def main(
    tables: Annotated[list[Path], typer.Option("--table", help="recorded by `tuner record`")],
    study: Annotated[str, typer.Option(help="whose limits the probes have")] = "pi_plus",
    seeds: int = 10,
) -> None:
    console = Console(width=160)
    for path in tables:
        ground = Ground(Table.load(path), study)
        shown = Shown(
            *HEADS, box=box.MARKDOWN, title=f"{path.parent.name}: {len(ground.values)} configs, {len(ground.good)} good"
        )
        whole_s = 0.0
        for name, pruner in PRUNERS.items():
            with TemporaryDirectory() as folder:
                tallies = [ground.run(pruner, seed, Path(folder)) for seed in range(seeds)]
            whole_s = whole_s or sum(one.window_s for one in tallies)
            shown.add_row(*row(name, ground, tallies, whole_s))
            print(name, end=" · ", flush=True)
        console.print(shown)


if __name__ == "__main__":
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    typer.run(main)
