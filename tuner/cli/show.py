"""What commands say: what will run, hints, what to mend."""

import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

from rich.console import Console

from tuner.cli.options import RUNS
from tuner.export.query import StudyReader
from tuner.export.records import INTERRUPTED, NO_TRIALS
from tuner.export.summary import Best, CaseSummary
from tuner.export.tables import safe_num_envs
from tuner.job import CaseOutcome, Ending
from tuner.probe.result import FailureKind
from tuner.replay.table import Table as RecordedTable
from tuner.study.cases import Case
from tuner.study.load import load, stands_in, unmatched
from tuner.study.space import LADDER, Config
from tuner.study.spec import StudySpec
from tuner.trainers.parameters import LadderEnd, ladder_end
from tuner.units import HOUR_S, duration
from tuner.urls import shown
from tuner.workbench import Workbench, not_searched

SETUP_REMEDIES: dict[str, str] = {
    FailureKind.MISSING_DEPENDENCY: "install it into the trainer's environment (`trainer.python` in the study file)",
    FailureKind.MISSING_ASSET: "put the file where the trainer looks for it (under `trainer.root`)",
}
"""What to do where no other config would fare better."""

REMEDIES = {
    **SETUP_REMEDIES,
    FailureKind.GPU_BUSY: "free the cards, then run the same command again",
    FailureKind.GPU_LOST: "`tuner doctor` tells what the driver says; a reset or reboot may be needed",
    FailureKind.PORT_IN_USE: "look for a trainer that is still running",
}


PLAIN_WIDTH = 160
"""Columns of tables that go to a file or a pipe."""


def open_console() -> Console:
    """Give a console that fits the terminal, or is wide enough for a table elsewhere; what it cannot spell is a `?`."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    console = Console(highlight=False, soft_wrap=True)
    return console if console.is_terminal else Console(highlight=False, soft_wrap=True, width=PLAIN_WIDTH)


def fall_silent(*streams: TextIO) -> None:
    """Let what is written to these go nowhere from now on."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def load_shown(console: Console, study: str) -> StudySpec:
    """Load a study, and say so where its fallback stands in for it. Raises StudyError."""
    spec = load(study)
    for line in stand_in(spec, study):
        console.print(line, markup=False)
    return spec


def stand_in(spec: StudySpec, asked_for: str) -> list[str]:
    """Say which study stands in for the one asked for, if one does."""
    if not stands_in(spec, asked_for):
        return []
    return [
        f"{asked_for}: trainer.root is empty (is MIMICKIT_ROOT set?); "
        f"its fallback {spec.name} stands in, recorded under its own name"
    ]


def introduction(console: Console, bench: Workbench, cases: Sequence[Case], shown_url: str) -> None:
    """Say what will run, on what, and what will not be searched."""
    for line in stand_in(bench.spec, bench.asked_for):
        console.print(line, markup=False)
    models = ", ".join(f"{device.label} {device.model}" for device in bench.devices)
    console.print(f"study {bench.spec.name}: {len(cases)} case(s), trainer {bench.trainer.name}", markup=False)
    console.print(f"devices {models}, measured by {bench.source.label}", markup=False)
    console.print(f"database {shown_url}", markup=False)
    if len(bench.spec.objectives) > 1:
        objectives = ", ".join(bench.spec.objectives)
        console.print(f"objectives {objectives}: the best are a Pareto front, no probe is pruned", markup=False)
    for constraint in bench.spec.build_constraints():
        console.print(f"the best must keep {constraint.metric} {constraint}", markup=False)
    by_reason: dict[str, list[str]] = {}
    for case in cases:
        for name, reason in not_searched(bench.spec_for(case), bench.trainer).items():
            by_reason.setdefault(reason, [])
            if name not in by_reason[reason]:
                by_reason[reason].append(name)
    for glob in unmatched(bench.spec, (case.name for case in bench.trainer.cases())):
        console.print(f"overrides: no case matches {glob!r}", markup=False)
    for reason, names in by_reason.items():
        console.print(f"not searched: {', '.join(names)}: {reason}", markup=False)
    for line in cut_ladders(bench, cases):
        console.print(line, markup=False)


def cut_ladders(bench: Workbench, cases: Iterable[Case]) -> list[str]:
    """Say of which cases the trainer cannot run the largest rungs, and why not, those with the same reason together."""
    by_end: dict[LadderEnd, list[str]] = {}
    for case in cases:
        if end := bench.cut_for(case):
            by_end.setdefault(end, []).append(case.name)
    return [f"{', '.join(names)}: {LADDER} up to {end.num_envs}: {end.reason}" for end, names in by_end.items()]


def replaying(table: RecordedTable, path: Path) -> str:
    """Say what stands in for trainer and devices."""
    header = table.header
    machine = header.machine.get("gpus") or header.machine.get("cpu")
    return (
        f"replaying {path}: {len(table.configs)} config(s) of {header.case}, recorded on {machine} by {header.date}; "
        "space and devices are the table's, search, pruner, objective, constraints and limits the study's"
    )


def replayed(bench: Workbench, spent_s: float) -> str:
    """Say what the probes of this time would have cost."""
    unit = "GPU-seconds" if bench.kind == "gpu" else "CPU rank-seconds"
    return f"simulated: {duration(spent_s)}, {spent_s * len(bench.devices):.0f} {unit}"


def recorded(case: Case, configs: Sequence[Config], table: RecordedTable | None) -> str:
    """Say how far the recording of a case has come."""
    if table is None:
        return f"{case.name}: nothing recorded yet, {len(configs)} config(s) left"
    left = sum(table.find(config) is None for config in configs)
    return f"{case.name}: {len(table.configs)} config(s) recorded, {left} of {len(configs)} left"


def to_be_made(rungs: Sequence[int]) -> str:
    """Say where the rungs of an `auto` ladder will come from; `rungs` are those it is calibrated at."""
    return f"{LADDER} is auto: probes at {' and '.join(map(str, rungs[:2]))} come first, and its rungs follow from them"


def ladder(case: str, rungs: Iterable[int]) -> str:
    """Show the rungs that an `auto` ladder has."""
    return f"{case}: {LADDER} is auto: {' '.join(map(str, rungs))}, fixed in this study"


def complaint(outcome: CaseOutcome) -> str | None:
    """Say what to mend where a case stopped early."""
    if outcome.ending is Ending.UNREAD:
        return f"case {outcome.case.name}: {outcome.why}; name another objective, or let the trainer count its samples"
    if outcome.failure is None:
        return None
    said = f"case {outcome.case.name}: {outcome.failure.kind}: {outcome.failure.detail}"
    if outcome.failure.rule == "trainer":  # it has said itself what to mend, and nothing was launched
        return said
    remedy = REMEDIES.get(outcome.failure.kind, f"read the newest console.log under probes/{outcome.case.name}")
    return f"{said}; {remedy}"


def at_its_end(case: str, why: str) -> str:
    """Say why a case ended."""
    return f"{case}: {Ending.EXHAUSTED}: {why}"


def safe_rungs(study: StudyReader) -> list[str]:
    """Name the `num_envs` that is safe for every case of each method, and of all methods."""
    groups: dict[str, list[str]] = {}
    for case in study.cases:
        groups.setdefault(case.method, []).append(case.name)
    if len(groups) > 1:
        groups["all cases"] = [case.name for case in study.cases]
    safe = {group: safe_num_envs(study, names) for group, names in groups.items()}
    return [
        f"{group}: {'no num_envs is' if rung is None else f'{LADDER} {rung} is'} known to be safe for every case"
        for group, rung in safe.items()
    ]


def at_the_top(bench: Workbench, cases: Iterable[Case], rows: Iterable[CaseSummary]) -> list[str]:
    """Say which cases are best at their largest rung, and whether a longer ladder may do better."""
    best = {row.case: row.best.config[LADDER] for row in rows if row.best and LADDER in row.best.config}
    return [
        f"{case.name}: the best is the largest rung, {best[case.name]}; {_beyond(bench, case, int(best[case.name]))}"
        for case in cases
        if case.name in best and best[case.name] == max(bench.space_for(case).values(LADDER), default=None)
    ]


def _beyond(bench: Workbench, case: Case, top: int) -> str:
    """Say what a ladder beyond this rung may come to."""
    more = "larger `max`" if bench.space_for(case).auto_bounds else "longer ladder"
    end, longer = ladder_end(bench.trainer, case), f"a {more} (in a study of another name) may do better"
    if end is None:
        return longer
    if top >= end.num_envs:
        return f"{bench.trainer.name} can run no larger one: {end.reason}"
    return f"{longer}, up to {end.num_envs}: {end.reason}"


def without_success(rows: Iterable[CaseSummary]) -> list[str]:
    """Say which cases have no best although they were tried, and what to do."""
    return [
        f"{row.case}: no config {'that ran may be the best' if row.ok else 'has run'} ({row.status}); "
        f"{SETUP_REMEDIES.get(row.status, '`tuner recover` looks for one')}"
        for row in rows
        if row.best is None and row.status not in {NO_TRIALS, INTERRUPTED}
    ]


def learning_changed(rows: Iterable[CaseSummary]) -> list[str]:
    """Say in which cases the best changes what is learnt, and what it makes of default's samples/s."""
    return [
        f"{row.case}: the best {_beside_default(row.best)}; {', '.join(row.best.changes_learning)} "
        f"{'change' if len(row.best.changes_learning) > 1 else 'changes'} what is learnt"
        for row in rows
        if row.best and row.best.changes_learning
    ]


def _beside_default(best: Best) -> str:
    if best.vs_default is None:
        return "has no default measured at its rung beside it"
    return f"makes {best.vs_default:.2f} of default's samples/s"


def script_of_best(study: str, *, devices: str | None, storage: str | None, runs: Path) -> str:
    """Say which command prints the best, with the options by which it finds the same database and devices."""
    named = {
        "--study": study,
        "--devices": devices,
        "--storage": storage and shown(storage),
        "--runs": None if runs == RUNS else runs,
    }
    words = [word for option, given in named.items() if given for word in (option, str(given))]
    return f"`{shlex.join(['tuner', 'plan', *words, '--best'])}` prints the best as a script to train with"


def out_of_time(hours: float) -> str:
    """Say that the budget of `--hours` is spent."""
    return f"the time of {duration(hours * HOUR_S)} is over; the same command goes on"


def written(console: Console, paths: Sequence[Path]) -> None:
    """Say which files were written, if any were, relative to the working directory where they lie below it."""
    if not paths:
        return
    here = Path.cwd()
    named = [path.relative_to(here) if path.is_relative_to(here) else path for path in paths]
    console.print(f"wrote {', '.join(map(str, named))}", markup=False)
