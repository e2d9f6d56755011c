"""What a session saves, and whether it tells the same: every config warm, one after another, then each again cold.

    python benchmarks/warm.py --case deepmimic_pi_plus_ppo --set num_envs=1024 --set num_envs=1024,agent_variant=default

With `--again` all are measured warm once more at the end: how far their two readings are apart is what the machine
changed meanwhile, and their mean is what the cold one between them is compared with. Warm probes pay for their session
in the row of the config that started it. The goals: readings that agree within their error bars, and at most 0.3 of the
device-seconds of cold probes over a whole grid.
"""

from collections.abc import Sequence
from contextlib import closing
from math import hypot
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from probing import Bench, chosen, pooled
from rich import box
from rich.console import Console
from rich.table import Table

from tuner.devices.base import describe_machine
from tuner.probe.metrics import value
from tuner.probe.result import ProbeResult
from tuner.prober import open_prober
from tuner.study.cases import select
from tuner.study.space import Config
from tuner.workbench import open_workbench

HEADS = (
    "config",
    "warm",
    "±",
    "changed by",
    "cold",
    "±",
    "apart",
    "in errors",
    "of that start, s",
    "warm, device-s",
    "cold, device-s",
    "warm, MiB",
    "cold, MiB",
)


def row(warm: Sequence[ProbeResult], cold: ProbeResult, objective: str, devices: int) -> list[str]:
    """Give the cells after the config: one warm probe or more in their order, and the cold one."""
    of_warm, of_cold = pooled(warm, objective), pooled([cold], objective)
    spent = [
        f"{fmean(one.ready_s or 0.0 for one in warm):.0f}",
        f"{devices * fmean(one.total_s for one in warm):.0f}",
        f"{devices * cold.total_s:.0f}",
        *(f"{value(one, 'mem_peak_mib') or 0.0:,.0f}" for one in (warm[0], cold)),
    ]
    if of_warm.value is None or of_cold.value is None:
        return [*of_warm.cells, "", *of_cold.cells, "", "", *spent]
    apart, errors = of_warm.value - of_cold.value, hypot(of_warm.error or 0.0, of_cold.error or 0.0)
    first, last = (value(one, objective) or 0.0 for one in (warm[0], warm[-1]))
    changed = f"{last - first:+.2f}" if len(warm) > 1 else ""
    in_errors = f"{abs(apart) / errors:.1f}" if errors else ""
    return [*of_warm.cells, changed, *of_cold.cells, f"{apart:+.2f}", in_errors, *spent]


def main(
    study: Annotated[str, typer.Option()] = "pi_plus",
    case: Annotated[str, typer.Option()] = "deepmimic_pi_plus_ppo",
    settings: Annotated[list[str] | None, typer.Option("--set", help="num_envs=N,…, once per config")] = None,
    devices: Annotated[str | None, typer.Option()] = None,
    again: Annotated[bool, typer.Option("--again", help="all warm once more after the cold ones")] = False,
) -> None:
    bench = open_workbench(study, devices=devices)
    (known,) = select(bench.trainer.cases(), [case])
    objective = bench.spec.objective
    configs = chosen(bench.space_for(known), settings or [])
    table = Table(*HEADS, box=box.MARKDOWN, title=f"{bench.spec.name}/{case}: {objective}")
    with TemporaryDirectory() as folder, closing(open_prober(bench)) as prober:
        probing = Bench(bench, known, prober, Path(folder).resolve())

        def measured(*, warm: bool) -> list[ProbeResult]:
            return [_told(probing.probe(config, warm=warm), config, objective, warm=warm) for config in configs]

        rounds = [measured(warm=True)]
        cold = measured(warm=False)
        if again:
            rounds.append(measured(warm=True))
    for config, of_cold, *of_warm in zip(configs, cold, *rounds, strict=True):
        table.add_row(" ".join(map(str, config.values())), *row(of_warm, of_cold, objective, len(bench.devices)))
    console = Console(width=200)
    console.print(describe_machine(bench.source))
    console.print(table)
    share = fmean(one.total_s for warm in rounds for one in warm) / fmean(one.total_s for one in cold)
    console.print(f"a warm probe took {share:.2f} of a cold one on average, sessions' starts included")


def _told(probe: ProbeResult, config: Config, objective: str, *, warm: bool) -> ProbeResult:
    """Print a probe as it comes, since a machine may be taken away, and give it back."""
    cells = pooled([probe], objective).cells
    print(*config.values(), "warm" if warm else "cold", *cells, f"{probe.total_s:.0f} s", sep=" | ", flush=True)
    return probe


if __name__ == "__main__":
    typer.run(main)
