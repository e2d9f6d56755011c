"""Compares ways to measure the same config: in a session with thin iterations, in one with whole ones, and cold.

    python -m benchmarks.probes.ways --case deepmimic_pi_plus_ppo --set num_envs=1024 --set num_envs=2048
    python -m benchmarks.probes.ways --way thin --way whole --way plain --rounds 3 --by-config --set num_envs=1024

`thin` and `whole` are probes in a session; `thin` makes fewer updates per iteration. `warm` is one of the two, as the
study says. `plain` is a probe with the trainer's plain command, which starts the trainer anew.

By default all configs are measured in the first way, one after another, then all in the next way. So one session serves
many configs, and the config that started the session pays for the start. With `--by-config` all ways of a config follow
each other, because a machine changes with time. `--way warm --way plain --way warm` shows this change: the column
"changed by" is the last measurement of the same way minus its first.

The goals: values that agree within their standard errors, and warm probes that take at most 0.3 of the device-seconds
of plain ones over a whole grid.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from math import hypot
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.probes.probing import Bench, chosen, pooled
from tuner.devices.found import describe_machine
from tuner.probe.metrics import value
from tuner.probe.result import ProbeResult
from tuner.running.prober import open_prober
from tuner.running.workbench import open_workbench
from tuner.study.cases import select
from tuner.study.space import Config

WARM, THIN, WHOLE, PLAIN = "warm", "thin", "whole", "plain"
HEADS = (
    *("config", "way", "value", "±", "changed by", "minus plain", "in errors"),
    *("start, s", "after the start, s", "device-s", "trained iteration, s", "window iteration, s", "peak, MiB"),
)


def row(probes: Sequence[ProbeResult], plain: Sequence[ProbeResult], objective: str, devices: int) -> list[str]:
    """Return the cells after config and way: means over `probes`, beside the probes with the plain command."""
    measured, cold = pooled(probes, objective), pooled(plain, objective) if plain else None
    spent = [
        f"{fmean(one.ready_s or 0.0 for one in probes):.0f}",
        f"{fmean(one.total_s - (one.ready_s or 0.0) for one in probes):.0f}",
        f"{devices * fmean(one.total_s for one in probes):.0f}",
    ]
    if measured.value is None:
        return [*measured.cells, "", "", "", *spent]
    first, last = (value(one, objective) or 0.0 for one in (probes[0], probes[-1]))
    apart = in_errors = ""
    if cold is not None and cold.value is not None and plain is not probes:
        difference, error = measured.value - cold.value, hypot(measured.error or 0.0, cold.error or 0.0)
        apart, in_errors = f"{difference:+.2f}", f"{abs(difference) / error:.1f}" if error else ""
    return [
        *measured.cells,
        f"{last - first:+.2f}" if len(probes) > 1 else "",
        apart,
        in_errors,
        *spent,
        f"{fmean((one.trained_s or 0.0) / one.iterations for one in probes):.2f}",
        f"{fmean((one.window_s or 0.0) / one.iterations for one in probes):.2f}",
        f"{max(value(one, 'mem_peak_mib') or 0.0 for one in probes):,.0f}",
    ]


def turns(configs: Sequence[Config], ways: Sequence[str], *, by_config: bool) -> Iterator[tuple[int, str]]:
    """Yield the number of the config and the way of each probe, in their order."""
    if by_config:
        yield from ((number, way) for number in range(len(configs)) for way in ways)
    else:
        yield from ((number, way) for way in ways for number in range(len(configs)))


def main(
    study: Annotated[str, typer.Option()] = "pi_plus",
    case: Annotated[str, typer.Option()] = "deepmimic_pi_plus_ppo",
    settings: Annotated[list[str] | None, typer.Option("--set", help="num_envs=N,…, once per config")] = None,
    ways: Annotated[list[str] | None, typer.Option("--way", help="warm, thin, whole or plain, in order")] = None,
    devices: Annotated[str | None, typer.Option()] = None,
    rounds: Annotated[int, typer.Option(min=1, help="how often all ways are repeated")] = 1,
    by_config: Annotated[bool, typer.Option("--by-config", help="all ways of a config before the next config")] = False,
) -> None:
    order = list(ways or (WARM, PLAIN))
    if unknown := set(order) - {WARM, THIN, WHOLE, PLAIN}:
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: give {WARM}, {THIN}, {WHOLE} or {PLAIN}")
    bench = open_workbench(study, devices=devices)
    (known,) = select(bench.trainer.cases(), [case])
    objective, configs = bench.spec.objective, chosen(bench.space_for(known), settings or [])
    probes: defaultdict[tuple[int, str], list[ProbeResult]] = defaultdict(list)
    with TemporaryDirectory() as folder, closing(open_prober(bench)) as prober:
        probing = Bench(bench, known, prober, Path(folder).resolve())
        limits = {way: probing.limits.model_copy(update={"thin": way == THIN}) for way in (THIN, WHOLE)}
        for number, way in turns(configs, order * rounds, by_config=by_config):
            probe = probing.probe(configs[number], warm=way != PLAIN, limits=limits.get(way))
            probes[number, way].append(probe)
            # each probe is printed at once, because a machine may be taken away before the end
            cells = (*configs[number].values(), way, *pooled([probe], objective).cells, f"{probe.total_s:.0f} s")
            print(*cells, sep=" | ", flush=True)
    table = Table(*HEADS, box=box.MARKDOWN, title=f"{bench.spec.name}/{case}: {objective}")
    for (number, way), alike in sorted(probes.items(), key=lambda item: (item[0][0], order.index(item[0][1]))):
        plain = alike if way == PLAIN else probes.get((number, PLAIN), [])
        cells = row(alike, plain, objective, len(bench.devices))
        table.add_row(" ".join(map(str, configs[number].values())), way, *cells)
    console = Console(width=220)
    console.print(describe_machine(bench.source))
    console.print(table)
    seconds = {way: [one.total_s for (_, by), some in probes.items() if by == way for one in some] for way in order}
    for way in sorted(set(order) - {PLAIN}) if PLAIN in order else ():
        share = fmean(seconds[way]) / fmean(seconds[PLAIN])
        console.print(f"a {way} probe took {share:.2f} of the time of a plain one, starts included")


if __name__ == "__main__":
    typer.run(main)
