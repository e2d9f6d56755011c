"""The text that commands print before they begin: what runs, on which devices, and what is not searched."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from tuner.cli.loaded import exposed, stand_in
from tuner.study.cases import Case
from tuner.study.load import unmatched
from tuner.study.space import LADDER
from tuner.trainers.base import LadderEnd
from tuner.trainers.parameters import not_searched

if TYPE_CHECKING:
    from tuner.replay.table import Table as RecordedTable
    from tuner.workbench import Workbench


def introduction(console: Console, bench: "Workbench", cases: Sequence[Case], shown_url: str) -> None:
    """Print what runs, on which devices, and what is not searched."""
    for line in (*stand_in(bench.spec, bench.asked_for), *exposed(bench.spec)):
        console.print(line)
    models = ", ".join(f"{device.label} {device.model}" for device in bench.devices)
    console.print(f"study {bench.spec.name}: {len(cases)} case(s), trainer {bench.trainer.name}")
    console.print(f"devices {models}, measured by {bench.source.label}")
    console.print(f"database {shown_url}")
    if len(bench.spec.objectives) > 1:
        objectives = ", ".join(bench.spec.objectives)
        console.print(f"objectives {objectives}: the best are a Pareto front, no probe is pruned")
    for constraint in bench.spec.build_constraints():
        console.print(f"the best must keep {constraint.metric} {constraint}")
    by_reason: dict[str, list[str]] = {}
    for case in cases:
        for name, reason in not_searched(bench.spec_for(case), bench.trainer).items():
            by_reason.setdefault(reason, [])
            if name not in by_reason[reason]:
                by_reason[reason].append(name)
    for glob in unmatched(bench.spec, (case.name for case in bench.trainer.cases())):
        console.print(f"overrides: no case matches {glob!r}")
    for reason, names in by_reason.items():
        console.print(f"not searched: {', '.join(names)}: {reason}")
    for line in cut_ladders(bench, cases):
        console.print(line)


def cut_ladders(bench: "Workbench", cases: Iterable[Case]) -> list[str]:
    """Return a line for the cases whose largest rungs the trainer cannot run. Cases with one reason share a line."""
    by_end: dict[LadderEnd, list[str]] = {}
    for case in cases:
        if end := bench.cut_for(case):
            by_end.setdefault(end, []).append(case.name)
    return [f"{', '.join(names)}: {LADDER} up to {end.num_envs}: {end.reason}" for end, names in by_end.items()]


def replaying(table: "RecordedTable", path: Path) -> str:
    """Describe the recorded table that replaces trainer and devices."""
    header = table.header
    machine = header.machine.get("gpus") or header.machine.get("cpu")
    return (
        f"replaying {path}: {len(table.configs)} config(s) of {header.case}, recorded on {machine} by {header.date}; "
        "space and devices come from the table; search, pruner, objective, constraints and limits come from the study"
    )
