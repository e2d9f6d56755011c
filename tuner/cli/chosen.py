"""Which cases of a study a command works on, and what the study has fixed for `auto`."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Annotated

import typer
from sqlalchemy import Engine

from tuner.cli.options import not_empty
from tuner.errors import EmptyStoreError, StudyError, TunerError
from tuner.export.reader import StudyReader, connect
from tuner.running.workbench import Workbench
from tuner.search.siblings import lending_order
from tuner.store.leases import is_held
from tuner.study.cases import Case, select
from tuner.study.load import load
from tuner.trainers.registry import open_trainer


def completed(context: typer.Context, incomplete: str) -> list[str]:
    """Return what Tab offers after `--cases`: the trainable cases of the line's study, after any others and a comma."""
    before, comma, begun = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in _trainable(context.params.get("study")) if name.startswith(begun)]


def _trainable(study: str | None) -> Iterable[str]:
    if study is None:
        return []
    try:
        known = open_trainer(load(study, to_show=True).trainer).cases()
    except (TunerError, OSError):  # a message would stand amid the line that the user types
        return []
    return [case.name for case in known if case.trainable]


Cases = Annotated[
    list[str] | None,
    typer.Option(
        callback=not_empty,
        autocompletion=completed,
        help="Globs of cases: separated by commas, or repeat the option; default: the study's.",
    ),
]


def chosen_cases(bench: Workbench, cases: Sequence[str] | None) -> list[Case]:
    """Return the requested cases, or else the study's cases. Raises StudyError for a glob that matches no case."""
    asked = [part.strip() for option in cases or () for part in option.split(",")]
    return select(bench.trainer.cases(), [part for part in asked if part] or bench.spec.cases)


def one_case(bench: Workbench, cases: Sequence[str] | None, what: str = "this") -> Case:
    """Return the case of this name, or the study's only case. Raises StudyError where several are meant."""
    found = chosen_cases(bench, cases)
    if len(found) != 1:
        known = ", ".join(case.name for case in found)
        asked = " ".join(cases or ()) or "the study"
        raise StudyError(f"{what} is about one case, and {asked} means {known}; name one with --case")
    return found[0]


def cases_to_search(bench: Workbench, cases: Sequence[str] | None) -> list[Case]:
    """Return the chosen cases in the order of the search. If a study asks for all, those that lend most come first."""
    chosen = chosen_cases(bench, cases)
    return lending_order(chosen) if not cases and bench.spec.cases == ("*",) else chosen


def with_fixed_values(bench: Workbench, engine: Engine) -> Workbench:
    """Return the bench with the rungs and the batch sizes that the database has for `auto`, if it has the study."""
    rungs, batches = dict(bench.rungs), dict(bench.batches)
    with suppress(EmptyStoreError):
        for case in StudyReader(engine, bench.spec.name).cases:
            rungs |= {case.name: case.facts.rungs} if case.facts.rungs else {}
            batches |= {case.name: case.facts.batch} if case.facts.batch else {}
    return replace(bench, rungs=rungs, batches=batches)


def open_reader(url: str, study: str) -> StudyReader:
    """Open a study to read it; a trial whose process is gone counts as interrupted. Raises StoreError."""
    return StudyReader(connect(url), study, is_held=is_held)
