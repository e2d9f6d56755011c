"""The closing messages of commands: the outcome, what the user must fix, and what to do next."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from tuner.cli.options import RUNS, as_words
from tuner.export.bound import advice
from tuner.export.case_view import NO_TRIALS, CaseSummary, CaseView
from tuner.export.reader import StudyReader
from tuner.export.tables import ladder_of_study, safe_rung
from tuner.export.wording import doubts, of_default, with_error
from tuner.kept.trial import INTERRUPTED
from tuner.kept.urls import shown
from tuner.probe.kinds import Blame, FailureKind
from tuner.probe.metrics import SAMPLES_PER_S
from tuner.probe.units import duration
from tuner.running.events import CaseOutcome, Ending
from tuner.study.cases import Case
from tuner.study.space import LADDER, PATIENCE, Config, Parameter, Value

if TYPE_CHECKING:
    from tuner.replay.recorded import Table as RecordedTable
    from tuner.running.job import Budget
    from tuner.running.workbench import Workbench


RECOVER = "`tuner recover` searches for a config that runs"


def complaint(outcome: CaseOutcome) -> str | None:
    """Return what the user must fix, if a case stopped early for a reason that the user can fix."""
    if outcome.ending is Ending.UNREAD:
        return f"case {outcome.case.name}: {outcome.why}; name another objective, or let the trainer count its samples"
    if outcome.failure is None:
        return None
    cause = f"case {outcome.case.name}: {outcome.failure.kind}: {outcome.failure.detail}"
    if outcome.failure.rule == "trainer":  # the trainer refused before any launch, and its text says what to fix
        return cause
    return f"{cause}; {_remedy(outcome.failure.kind, outcome.case.name)}"


def at_its_end(case: str, why: str) -> str:
    """Return a line that says why a case ended."""
    return f"{case}: {Ending.EXHAUSTED}: {why}"


def notes(rows: Iterable[CaseSummary]) -> list[str]:
    """Return lines with what the table of a study's cases does not show."""
    known = list(rows)
    return [
        *replays(known),
        *without_success(known),
        *(f"{row.case}: {line}" for row in known for line in doubts(row)),
        *learning_changed(known),
        *far_faster(known),
        *limits(known),
        *on_several_devices(known),
        *left_out(known),
    ]


def replays(rows: Iterable[CaseSummary]) -> list[str]:
    """Return a line for each case whose probes were looked up in a recorded table."""
    return [f"{row.case}: replay of {row.replay_of}; no trainer ran" for row in rows if row.replay_of]


def without_success(rows: Iterable[CaseSummary]) -> list[str]:
    """Return a line for each case that has trials but no best config: what the user can do."""
    return [
        f"{row.case}: no config {'that ran is eligible as best' if row.ok else 'has run'} ({row.status}); "
        f"{_advice(row)}"
        for row in rows
        if row.best is None and row.status not in {NO_TRIALS, INTERRUPTED}
    ]


def _advice(row: CaseSummary) -> str:
    """Return what to do about a case without a best. Smaller rungs help where the config may be at fault."""
    kind = next((kind for kind in FailureKind if kind == row.status), None)
    if kind is None or kind.blame is Blame.CONFIG:
        return RECOVER
    return f"{_remedy(kind, row.case)}; {RECOVER}" if kind.blame is Blame.UNKNOWN else _remedy(kind, row.case)


def _remedy(kind: str, case: str) -> str:
    return FailureKind(kind).remedy or f"read the newest console.log under probes/{case}"


def learning_changed(rows: Iterable[CaseSummary]) -> list[str]:
    """Return a line for each case whose best config changes what is learnt, with its speed relative to the default."""
    return [
        f"{row.case}: {_beside_default(row)}; {', '.join(row.best.changes_learning)} "
        f"{'change' if len(row.best.changes_learning) > 1 else 'changes'} what is learnt"
        for row in rows
        if row.best and row.best.changes_learning
    ]


def _beside_default(row: CaseSummary) -> str:
    if row.best and row.best.vs_default is not None:
        return f"the best makes {row.best.vs_default:.2f} times the default's samples/s"
    if row.default and row.default.times:
        name = f"{of_default(row)} (#{row.default.trial})"
        return f"the best makes {1.0 / row.default.times:.2f} times the samples/s of {name}"
    return "the default has not been measured"


def far_faster(rows: Iterable[CaseSummary]) -> list[str]:
    """Return a line for each case with a config that is far faster than the best: how to search for such configs."""
    return [
        f"{row.case}: #{row.faster.trial} makes {row.faster.times or 0.0:.1f} times the best's samples/s, at "
        f"{with_error(row.faster.value, row.faster.error)} {row.objective}; `objective: {SAMPLES_PER_S}` or "
        f"`{row.objective},{SAMPLES_PER_S}`, in a study with another name, searches for such configs"
        for row in rows
        if row.faster
    ]


def limits(rows: Iterable[CaseSummary]) -> list[str]:
    """Return a line for each class of cases: what limits their best configs, and what to do next."""
    alike: dict[str, list[str]] = {}
    for row in rows:
        if row.bound and row.profile:
            alike.setdefault(f"{row.bound}: {advice(row.bound, row.profile)}", []).append(row.case)
    return [f"{', '.join(cases)}: {said}" for said, cases in alike.items()]


def on_several_devices(rows: Iterable[CaseSummary]) -> list[str]:
    """Return a line for each case that several sets of devices have measured. Hosts measure different values."""
    return [
        f"{row.case}: measured on {len(row.measured_on)} sets of devices (`measured_on` in trials.tsv); "
        "on another host the same config may measure several points more or less"
        for row in rows
        if len(row.measured_on) > 1
    ]


def left_out(rows: Iterable[CaseSummary]) -> list[str]:
    """Say which cases have trials in the database that count for nothing here."""
    return [
        f"{row.case}: {row.left_out} trial(s) left out: another program added them, or their records are damaged"
        for row in rows
        if row.left_out
    ]


def at_the_top(bench: "Workbench", cases: Iterable[Case], rows: Iterable[CaseSummary]) -> Iterator[str]:
    """Return lines where a case's best has a parameter's largest value: whether larger values may be better."""
    best = {row.case: row.best.config for row in rows if row.best}
    for case in cases:
        largest = [one for one in bench.space_for(case).parameters if _is_at_the_top(one, best.get(case.name, {}))]
        for one in largest:
            if one.is_ladder:
                top = int(best[case.name][one.name])
                yield f"{case.name}: the best is at the largest rung, {top}; {_beyond(bench, case, top)}"
        if others := [f"{one.name}, {best[case.name][one.name]}" for one in largest if not one.is_ladder]:
            yield (
                f"{case.name}: the best has the largest {', and the largest '.join(others)}; "
                "larger values may be better, in a study with another name"
            )


def _is_at_the_top(parameter: Parameter, config: Mapping[str, Value]) -> bool:
    """Return whether a config has the largest of a parameter's numbers, and a larger number makes sense.

    It does not for the tuner's own patience, for a single rung, and for a switch: one of two values, such as 0 and 1.
    """
    numbers = [value for value in parameter.values if not isinstance(value, str | bool)]
    if parameter.name == PATIENCE or len(numbers) < len(parameter.values):
        return False
    return len(numbers) > (1 if parameter.is_ladder else 2) and config.get(parameter.name) == max(numbers)


def _beyond(bench: "Workbench", case: Case, top: int) -> str:
    """Return whether a rung above `top`, the largest rung, may be better."""
    space = bench.space_for(case)
    more = "larger `max`" if space.auto_bounds else "longer ladder"
    end = bench.trainer.ladder_end(case) if space.ladder == LADDER else None
    longer = f"a {more} may be better, in a study with another name"
    if end is None:
        return longer
    if top >= end.num_envs:
        return f"{bench.trainer.name} cannot run a larger rung: {end.reason}"
    return f"{longer}; {bench.trainer.name} can run rungs up to {end.num_envs}: {end.reason}"


def safe_rungs(study: StudyReader) -> list[str]:
    """Return lines with the rung that is safe for all cases of each method, and of all methods.

    Returns none for a study that does not search a ladder.
    """
    ladder = ladder_of_study(study)
    if ladder not in study.fields[0]:
        return []
    groups: dict[str, list[CaseView]] = {}
    for case in study.cases:
        groups.setdefault(case.method, []).append(case)
    if len(groups) > 1:
        groups["all cases"] = study.cases
    alike: dict[int | None, list[str]] = {}
    for group, cases in groups.items():
        alike.setdefault(safe_rung(cases), []).append(group)
    return [
        f"{', '.join(named)}: {ladder} {rung} is known to be safe for every case"
        if rung is not None
        else f"{', '.join(named)}: no {ladder} is known to be safe for every case"
        for rung, named in alike.items()
    ]


def recorded(case: Case, configs: Sequence[Config], table: "RecordedTable | None") -> str:
    """Return a line that says how much of a case is recorded."""
    if table is None:
        return f"{case.name}: nothing recorded yet, {len(configs)} config(s) left"
    left = sum(table.find(config) is None for config in configs)
    return f"{case.name}: {len(table.configs)} config(s) recorded, {left} of {len(configs)} left"


def replayed(bench: "Workbench", spent_s: float) -> str:
    """Return a line that says what the replayed probes would have cost on real devices."""
    return f"simulated: {duration(spent_s)}, {spent_s * len(bench.devices):,.0f} device-seconds"


def plan_best(study: str, *, devices: str | None = None, storage: str | None, runs: Path) -> list[str]:
    """Return the command that prints the best configs as scripts; its options name the same database and devices."""
    options = {
        "study": study,
        "devices": devices,
        "storage": storage and shown(storage),
        "runs": None if runs == RUNS else runs,
    }
    return ["tuner", "plan", *as_words(options), "--best"]


def script_of_best(study: str, *, devices: str | None, storage: str | None, runs: Path) -> str:
    """Return a line that says which command prints the best config."""
    command = plan_best(study, devices=devices, storage=storage, runs=runs)
    return f"`{shlex.join(command)}` prints a script that trains with the best config"


def out_of_time(budget: "Budget") -> str:
    """Return a line that says that the time of `--hours` is over, or that the rest is too short for a probe."""
    whole, resume = duration(budget.whole_s), "the same command continues"
    if budget.short is None:
        return f"the time of {whole} is over; {resume}"
    probe, left = map(duration, budget.short)
    return f"the next probe takes about {probe}, but only {left} of {whole} are left; {resume}"


def written(console: Console, paths: Sequence[Path]) -> None:
    """Print the names of the written files, if any. Names below the working directory are relative to it."""
    if not paths:
        return
    here = Path.cwd()
    named = [path.relative_to(here) if path.is_relative_to(here) else path for path in paths]
    console.print(f"wrote {', '.join(map(str, named))}")


ENDED = {Ending.ALREADY, Ending.TARGET, Ending.EXHAUSTED}
"""How a case ends that needs no more probes."""


def of_all(cases: Sequence[Case], outcomes: Sequence[CaseOutcome], rows: Sequence[CaseSummary], devices: int) -> str:
    """Return a line that says what the probes of several cases took, and which of the cases still need probes.

    `rows` have what all runs of the study took, this one included. The line is empty for a single case.
    """
    if len(cases) < 2:
        return ""
    wanted, ended = {case.name for case in cases}, {one.case.name for one in outcomes if one.ending in ENDED}
    begun = [row for row in rows if row.case in wanted]
    taken_s = sum(row.probe_s for row in begun)
    left = [case.name for case in cases if case.name not in ended]
    return (
        f"the probes of {len(begun)} of {len(cases)} cases took {duration(taken_s)}, {taken_s * devices:,.0f} "
        f"device-seconds, {taken_s * devices / max(len(begun), 1):,.0f} per case; "
        + (f"{len(left)} left: {', '.join(left)}" if left else "none is left")
    )
