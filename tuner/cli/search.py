"""What `tuner optimize` and `tuner worker` share: a study opened on devices or on a recorded table, and its search."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tuner.budget import Budget, within
from tuner.cli.chosen import cases_to_search
from tuner.cli.hints import replayed
from tuner.cli.introduction import replaying
from tuner.errors import StudyError
from tuner.job import Job
from tuner.loop import optimise
from tuner.outcome import CaseOutcome
from tuner.probe.protocols import Prober
from tuner.prober import open_prober
from tuner.replay.bench import replay_bench
from tuner.replay.prober import ReplayedProber
from tuner.replay.table import Table
from tuner.study.cases import Case
from tuner.workbench import Workbench, open_workbench

LOOK_S = 1.0
"""The seconds between two looks at what other workers do."""

Trials = Annotated[
    int | None, typer.Option("--n-trials", min=1, help="Finished trials per case; default: the study's.")
]
Replay = Annotated[
    Path | None,
    typer.Option(dir_okay=False, help="Probe a table of `tuner record` (.parquet), in simulated time."),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Search:
    """A study that is ready to be searched."""

    bench: Workbench
    prober: Prober
    cases: Sequence[Case]
    simulated_cost: Callable[[], str] | None = None
    """Returns what the probes so far would have cost, where a recorded table stands in for trainer and devices."""

    @property
    def simulated(self) -> bool:
        """Whether a recorded table stands in for trainer and devices."""
        return self.simulated_cost is not None

    def run(self, job: Job, budget: Budget, trials: int | None) -> list[CaseOutcome]:
        """Search each case until the budget or the number of finished trials is used up; see `loop.optimise`.

        It waits for the last probes of other workers, and for probes beside which nothing is confirmed.
        """
        looking = replace(job, simulated=self.simulated, trials=trials, wait=partial(time.sleep, LOOK_S))
        limited = within(looking, budget)
        return optimise(limited, self.cases)


def open_search(
    console: Console,
    study: str,
    *,
    cases: Sequence[str] | None,
    devices: str | None,
    replay: Path | None,
    runs: Path,
) -> Search:
    """Open a study on its devices, or on the table `replay`.

    Raises StudyError, TrainerError or DeviceError where the study, a case or a device cannot be used.
    """
    if replay is None:
        bench = open_workbench(study, devices=devices, runs=runs)
        return Search(bench=bench, prober=open_prober(bench, console.print), cases=cases_to_search(bench, cases))
    if cases or devices:
        raise StudyError("--replay takes case and devices from the table; leave out --cases and --devices")
    table = Table.load(replay)
    bench = replay_bench(table, study, runs=runs)
    prober = ReplayedProber(table, *bench.spec.objectives)
    console.print(replaying(table, replay))
    return Search(
        bench=bench,
        prober=prober,
        cases=cases_to_search(bench, cases),
        simulated_cost=lambda: replayed(bench, prober.spent_s),
    )
