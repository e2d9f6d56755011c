"""The closing messages of commands: the outcome, what to mend, what to do next."""

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console

from tuner.budget import Budget
from tuner.cli.options import RUNS
from tuner.export.query import StudyReader
from tuner.export.records import INTERRUPTED, NO_TRIALS
from tuner.export.summary import Best, CaseSummary
from tuner.export.tables import safe_num_envs
from tuner.outcome import CaseOutcome, Ending
from tuner.probe.kinds import Blame, FailureKind
from tuner.replay.table import Table as RecordedTable
from tuner.study.cases import Case
from tuner.study.space import LADDER, Config
from tuner.units import duration
from tuner.urls import shown
from tuner.workbench import Workbench

_SETUP_REMEDIES: dict[str | None, str | None] = {kind: kind.remedy for kind in FailureKind if kind.blame is Blame.SETUP}


def complaint(outcome: CaseOutcome) -> str | None:
    """Say what to mend where a case stopped early."""
    if outcome.ending is Ending.UNREAD:
        return f"case {outcome.case.name}: {outcome.why}; name another objective, or let the trainer count its samples"
    if outcome.failure is None:
        return None
    said = f"case {outcome.case.name}: {outcome.failure.kind}: {outcome.failure.detail}"
    if outcome.failure.rule == "trainer":  # it has said itself what to mend, and nothing was launched
        return said
    remedy = outcome.failure.kind.remedy or f"read the newest console.log under probes/{outcome.case.name}"
    return f"{said}; {remedy}"


def at_its_end(case: str, why: str) -> str:
    """Say why a case ended."""
    return f"{case}: {Ending.EXHAUSTED}: {why}"


def notes(rows: Iterable[CaseSummary]) -> list[str]:
    """Say what the table of a study's cases does not show."""
    known = list(rows)
    return [*without_success(known), *learning_changed(known), *on_several_devices(known)]


def without_success(rows: Iterable[CaseSummary]) -> list[str]:
    """Say which cases have no best although they were tried, and what to do."""
    return [
        f"{row.case}: no config {'that ran may be the best' if row.ok else 'has run'} ({row.status}); "
        f"{_SETUP_REMEDIES.get(row.status) or '`tuner recover` looks for one'}"
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


def on_several_devices(rows: Iterable[CaseSummary]) -> list[str]:
    """Say which cases were measured on more than one set of devices, whose readings compare less well."""
    return [
        f"{row.case}: measured on {len(row.measured_on)} sets of devices (`measured_on` in trials.tsv); "
        "from host to host the same config may read several points apart"
        for row in rows
        if len(row.measured_on) > 1
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
    end, longer = bench.trainer.ladder_end(case), f"a {more} (in a study of another name) may do better"
    if end is None:
        return longer
    if top >= end.num_envs:
        return f"{bench.trainer.name} can run no larger one: {end.reason}"
    return f"{longer}, up to {end.num_envs}: {end.reason}"


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


def recorded(case: Case, configs: Sequence[Config], table: RecordedTable | None) -> str:
    """Say how far the recording of a case has come."""
    if table is None:
        return f"{case.name}: nothing recorded yet, {len(configs)} config(s) left"
    left = sum(table.find(config) is None for config in configs)
    return f"{case.name}: {len(table.configs)} config(s) recorded, {left} of {len(configs)} left"


def replayed(bench: Workbench, spent_s: float) -> str:
    """Say what the probes of this time would have cost."""
    unit = "GPU-seconds" if bench.kind == "gpu" else "CPU rank-seconds"
    return f"simulated: {duration(spent_s)}, {spent_s * len(bench.devices):.0f} {unit}"


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


def out_of_time(budget: Budget) -> str:
    """Say that the budget of `--hours` is spent, or what is left of it too short for a probe."""
    whole, goes_on = duration(budget.whole_s), "the same command goes on"
    if budget.short is None:
        return f"the time of {whole} is over; {goes_on}"
    probe, left = map(duration, budget.short)
    return f"the next probe takes about {probe}, {left} of the {whole} are left; {goes_on}"


def written(console: Console, paths: Sequence[Path]) -> None:
    """Say which files were written, if any were, relative to the working directory where they lie below it."""
    if not paths:
        return
    here = Path.cwd()
    named = [path.relative_to(here) if path.is_relative_to(here) else path for path in paths]
    console.print(f"wrote {', '.join(map(str, named))}", markup=False)
