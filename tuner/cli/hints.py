"""The lines that commands print: what runs and what is not fixed yet, and at the end what to fix and to do next.

The ladder of a study is the parameter whose larger values, its rungs, need more memory, such as `num_envs`.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from tuner.cli.options import RUNS, STORAGE_VARIABLE, as_words, fallback_lines
from tuner.export import CaseSummary, Topic, findings, findings_beside_table, merged_lines, remedy, session_note, unit
from tuner.probe import number_of, other_tuners
from tuner.records.urls import STUDY_FILE, shown
from tuner.running.events import CaseOutcome, Ending
from tuner.study import (
    LADDER,
    PATIENCE,
    Case,
    Parameter,
    Value,
    grouped,
    key_warnings,
    literal_line,
    study_exists,
    unmatched,
)
from tuner.trainers.registry import not_searched

if TYPE_CHECKING:
    from tuner.running.job import Workbench


def introduction(console: Console, bench: "Workbench", cases: Sequence[Case], url: str, workers: int = 1) -> None:
    """Print what runs, on which devices, and what is not searched. `workers`: how many of this machine probe."""
    for line in (*fallback_lines(bench.spec, bench.requested_study), *key_warnings(bench.spec)):
        console.print(line)
    models = ", ".join(f"{device.label} {device.model}" for device in bench.devices)
    values = " and ".join(map(unit, bench.spec.objectives))
    about = f"{number_of(len(cases), 'case')}, trainer {bench.trainer.name}; a trial's value is {values}"
    console.print(f"study {bench.spec.name}: {about}")
    memory_mib = bench.spec.environment.memory_mib
    limit = f", at most {memory_mib:,.0f} MiB each" if memory_mib else ""
    console.print(f"devices {models}{limit}, measured by {bench.source.label}")
    from tuner.devices.cpu import CpuSource, usable_cores  # noqa: PLC0415 - psutil, which `tuner status` does without

    if isinstance(bench.source, CpuSource):  # on a card, `obstacles` names the others
        if tuner_pids := other_tuners():
            pids = ", ".join(map(str, tuner_pids))
            console.print(f"another tuner probes on this CPU (pid {pids}): both slow each other's probes down")
        if workers > 1 and workers * len(bench.devices) > (cores := usable_cores()):
            ranks = number_of(len(bench.devices), "rank")
            problem = f"{workers} workers with {ranks} each share {number_of(cores, 'core')}"
            console.print(f"{problem}: they slow each other's probes down, and measure too little; use one worker")
    console.print(f"database {shown(url)}")
    if len(bench.spec.objectives) > 1:
        console.print("the best are a Pareto front, and no probe is pruned")
    for constraint in bench.spec.build_constraints():
        console.print(f"the best must keep {constraint.metric} {constraint}")
    for glob in unmatched(bench.spec, (case.name for case in bench.trainer.cases())):
        console.print(f"overrides: no case matches {glob!r}")
    reasons = [item for case in cases for item in not_searched(bench.spec_for(case), bench.trainer).items()]
    for line in merged_lines(reasons):
        console.print(f"not searched: {line}")
    faults = [(case.name, f"cannot run: {case.fault}") for case in cases if case.fault]
    for line in (*cut_ladders(bench, cases), *merged_lines(faults)):
        console.print(line)


def cut_ladders(bench: "Workbench", cases: Iterable[Case]) -> list[str]:
    """Return lines that say up to which number of environments the trainer can run cases, where the ladder has more.

    Cases with the same reason share a line.
    """
    ends = ((case.name, bench.ladder_end_for(case)) for case in cases)
    return merged_lines((name, f"{LADDER} up to {end.num_envs}: {end.reason}") for name, end in ends if end)


def what_to_repair(outcome: CaseOutcome) -> str | None:
    """Return what the user must repair before a case that stopped early can go on; None for nothing."""
    if outcome.why and outcome.stopped:  # its probes ran, and did not measure the objective
        return f"case {outcome.case.name}: {outcome.why}; name another objective, or let the trainer count its samples"
    if outcome.failure is None:
        return None
    cause = f"case {outcome.case.name}: {outcome.failure.kind}: {outcome.failure.detail}"
    if outcome.failure.rule == "trainer":  # the trainer refused before any launch, and its text says what to fix
        return cause
    return f"{cause}; {remedy(outcome.failure.kind, outcome.case.name)}"


def notes_beside_table(rows: Iterable[CaseSummary]) -> list[tuple[str, str]]:
    """Return what a table of cases does not show: pairs of a case's name and a text."""
    return [(row.case, str(finding)) for row in rows for finding in findings_beside_table(row)]


def lines_by_case(texts: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield texts below the names of their cases, and at last each text of several cases in a line with their names.

    Args:
        texts: Pairs of a case's name and a text.
    """
    cases_of = {text: {case for case, _ in pairs} for text, pairs in grouped(texts, itemgetter(1)).items()}
    for case, pairs in grouped(texts, itemgetter(0)).items():
        own = [f"  {text}" for _, text in pairs if len(cases_of[text]) == 1]
        yield from [f"{case}:", *own] if own else []
    yield from merged_lines(pair for pair in texts if len(cases_of[pair[1]]) > 1)


def lines_at_end(bench: "Workbench", cases: Sequence[Case], rows: Sequence[CaseSummary]) -> Iterator[str]:
    """Yield the lines below the table at a search's end: why cases have no best, the bound of a single case, one doubt.

    The doubt is the most important reason why a result may be wrong or not the best possible; see `Topic`.
    """
    yield from merged_lines((row.case, text) for row in rows if (text := session_note(row)))
    known = [(row, finding) for row in rows for finding in findings(row)]
    results = [(row.case, finding) for row, finding in known if finding.topic is Topic.RESULT and row.has_none_eligible]
    yield from merged_lines((case, str(finding)) for case, finding in results)
    if len(rows) == 1 and rows[0].best and rows[0].bound:
        yield f"{rows[0].case} is {rows[0].bound}"
    doubts: list[str] = []  # the largest first
    for topic in (Topic.REPLAY, Topic.DOUBT, Topic.CHOICE, Topic.DEVICES, Topic.FASTER, Topic.LEFT_OUT):
        doubts += merged_lines((row.case, str(finding)) for row, finding in known if finding.topic is topic)
    if doubt := next(chain(doubts, largest_values(bench, cases, rows)), None):
        yield doubt


def largest_values(bench: "Workbench", cases: Iterable[Case], rows: Iterable[CaseSummary]) -> Iterator[str]:
    """Yield a line for each case whose best has the largest value of a parameter: a larger value may be better.

    A ladder that ends where the trainer does is left out.
    """
    best_configs = {row.case: row.best.config for row in rows if row.best}
    for case in cases:
        best = best_configs.get(case.name, {})
        largest = {
            parameter.name: best[parameter.name]
            for parameter in bench.space_for(case).parameters
            if _has_largest(best, parameter)
        }
        end = bench.trainer.ladder_end(case) if LADDER in largest else None
        if end and int(largest[LADDER]) >= end.num_envs:
            del largest[LADDER]
        if largest:
            values = ", and the largest ".join(f"{name}, {value}" for name, value in largest.items())
            instead = "larger values may be better, in a study with another name"
            yield f"{case.name}: the best has the largest {values}; {instead}"


def command_for_larger(bench: "Workbench", row: CaseSummary, *, storage: str | None, runs: Path) -> str | None:
    """Return a line with the `tuner optimize` command that searches larger values than the best of a typed command has.

    It names each parameter of which the best has the largest searched value, a size that may be doubled. A rule of the
    space may forbid that: more cards for a model than there are. None where there is no such parameter, and where it is
    unknown how much faster than the default the best is.
    """
    config = row.best.config if row.best else {}
    if _is_gain_over_default_unknown(row):
        return None
    space = bench.space_for(Case(name=row.case))
    largest = [parameter.name for parameter in space.parameters if _has_largest(config, parameter)]
    sizes: dict[str, int] = {}
    for parameter in largest:
        size = config[parameter]
        if isinstance(size, int) and size > 0 and space.holds({**config, parameter: 2 * size}):
            sizes[parameter] = size
    if not sizes:
        return None
    name = "-".join([bench.spec.name, *map(str, sizes.values())])
    searches = [f"{parameter}={size},{2 * size},{4 * size}" for parameter, size in sizes.items()]
    options = as_words({"name": name, "search": searches, **_database_options(storage, runs)})
    return f"the best has the largest {' and '.join(sizes)}; to go on, optimize it with `{literal_line(options)}`"


def heading_of_command(row: CaseSummary) -> str:
    """Return the line above the command line of the best: to copy it, or to try it where it may be no faster."""
    may_be_none = row.gain is not None and (row.gain.is_within_error or row.gain.may_be_slower_later)
    is_doubtful = may_be_none or _is_gain_over_default_unknown(row)
    return "the command line to try; it may be no faster:" if is_doubtful else "the command line to copy:"


def _is_gain_over_default_unknown(row: CaseSummary) -> bool:
    """Return whether the best is another config than the default, and it is unknown whether it is faster."""
    is_unknown = row.gain is None and row.least_gain is None
    return bool(row.best and row.default) and not row.is_default_best and is_unknown


def _has_largest(config: Mapping[str, Value], parameter: Parameter) -> bool:
    """Return whether a config has the largest value of a parameter, and a larger one would make sense.

    It would not for words, for a switch with two values such as 0 and 1, for a ladder of a single rung, and for the
    pruner's patience, which changes nothing about the training.
    """
    numbers = [value for value in parameter.values if not isinstance(value, str | bool)]
    has_words = len(numbers) < len(parameter.values)
    least_count = 2 if parameter.is_ladder else 3
    if parameter.name == PATIENCE or has_words or len(numbers) < least_count:
        return False
    return config.get(parameter.name) == max(numbers)


def command_of_best(study: str, *, devices: str | None = None, storage: str | None, runs: Path) -> list[str]:
    """Return the words of the `tuner plan` command that prints the best configs as scripts.

    Its options name the same study, database and devices. A caller may add `--cases` and the name of a case.
    """
    file = Path(study)
    folder = file.parent
    is_kept_in_runs = file.name == STUDY_FILE and folder.parent == runs and bool(folder.name)
    # the folder's name finds the file, and is shorter; but a study file of this name would be found first
    if is_kept_in_runs and not study_exists(folder.name):
        study = folder.name
    options = {"study": study, "devices": devices, **_database_options(storage, runs)}
    return ["tuner", "plan", *as_words(options), "--best"]


def _database_options(storage: str | None, runs: Path) -> dict[str, object]:
    """Return the options with which another command finds the same database: name → value, None for no option.

    The default of `--runs` needs no option, nor does a `--storage` that the environment variable sets.
    """
    is_needed = storage and storage != os.environ.get(STORAGE_VARIABLE)
    return {"storage": shown(storage) if storage and is_needed else None, "runs": None if runs == RUNS else runs}


def line_about_script(
    study: str, *, devices: str | None, storage: str | None, runs: Path, requested: str | None = None
) -> str:
    """Return a line that says which command prints the best config of a study.

    `requested`: the study that the user named, if `study` stands in for it as its fallback.
    """
    command = literal_line(command_of_best(study, devices=devices, storage=storage, runs=runs))
    whose = f" of {study}, which stood in for {requested}" if requested not in {None, study} else ""
    return f"train with the best{whose}: `{command}` prints a script"


def stopped(outcomes: Sequence[CaseOutcome], *, interrupted: bool) -> str:
    """Return a line that says how far an interrupted search has come; empty after any other."""
    trials = number_of(sum(outcome.probed for outcome in outcomes), "trial")
    return f"stopped early, after {trials} of this run; rerun to resume" if interrupted else ""


def progress_of_cases(cases: Sequence[Case], outcomes: Sequence[CaseOutcome]) -> str:
    """Return a line that says how many of several cases are done, and which of them still need probes.

    The line is empty for a single case.
    """
    needs_no_more = {Ending.ALREADY, Ending.TARGET, Ending.EXHAUSTED}
    done = {outcome.case.name for outcome in outcomes if outcome.ending in needs_no_more}
    left = [case.name for case in cases if case.name not in done]
    to_do = f"; left: {', '.join(left)}" if left else ""
    return f"{len(cases) - len(left)} of {len(cases)} cases are done{to_do}" if len(cases) > 1 else ""
