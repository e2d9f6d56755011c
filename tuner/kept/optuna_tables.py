"""Optuna's tables as far as they are read here, and the name of each attribute and constraint that they keep."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Row, String, TableClause, cast, column, func, select, table

PROBE = "probe"
"""Trial attribute: the record of the probe, as `trial.encode` writes it."""
LEASE = "lease"
"""Trial attribute: the process that runs the trial."""
RETRY = "retry"
"""Trial attribute, of a failed trial: its config is to be probed again."""
CONFIRMS = "confirms"
"""Trial attribute: the trainer's plain command measures a config again that a session has measured."""
CALIBRATES = "calibrates"
"""Trial attribute: the rungs of an `auto` ladder, or an `auto` batch size, follow from the trial."""
SOAKS = "soaks"
"""Trial attribute: the trial shows whether a config's memory lasts. Its objectives do not count where others do."""
ORIGIN = "origin"
"""Trial attribute: the name of the other case in which the trial's config is the best."""
ERROR = "error"
"""Trial attribute: the standard error of a complete trial's value."""

WARM, MEASURED_ON, FAILURE, COST, RAN = "warm", "measured_on", "failure", "cost", "ran"
"""Trial attributes that stand in for a probe record where a trial has none: see `trial.KeptTrial`."""

CASE = "case"
"""Study attribute: the record of the case, as `case_record.encode` writes it."""
IDENTITY = "identity"
"""Study attribute: the settings that must not change while the study goes on."""
MENDED = "mended"
"""Study attribute: the number of trials from before the set-up was mended. They say nothing about their configs."""
ENDED = "ended"
"""Study attribute: why nothing was left that is worth a probe; None again once the case goes on."""
RUNGS = "rungs"
"""Study attribute: the rungs of an `auto` ladder, fixed once they have been made."""

BATCH = "batch"
"""Study attribute: the batch size that is `auto` and what it was worked out from, fixed once it is known."""
RACE = "race."
"""Beginning of the study attributes that hold the runs of a race; the number of the run follows."""

MEMORY = "memory_gib"
"""Constraint: the device memory that was missing, in GiB."""
INELIGIBLE = "ineligible"
"""Constraint, 1 for a complete trial that must not be the best; also the status of such a trial in summaries."""
INELIGIBLE_BEFORE = "eligible"
"""The misleading name that version 0.1.0 wrote for `INELIGIBLE`, with the same value 1."""


STUDIES = table("studies", column("study_id"), column("study_name", String))
DIRECTIONS = table("study_directions", column("study_id"))
FACTS = table("study_user_attributes", column("study_id"), column("key"), column("value_json"))
TRIALS = table(
    "trials",
    column("trial_id"),
    column("number"),
    column("study_id"),
    column("state", String),
    column("datetime_start"),
    column("datetime_complete"),
)
PARAMETERS = table(
    "trial_params",
    column("trial_id"),
    column("param_id"),
    *map(column, ("param_name", "param_value", "distribution_json")),
)
VALUES = table("trial_values", column("trial_id"), column("objective"), column("value"))
STEPS = table("trial_intermediate_values", column("trial_id"), column("step"), column("intermediate_value"))
ATTRIBUTES = table("trial_user_attributes", column("trial_id"), column("key"), column("value_json"))
CONSTRAINTS = table("trial_system_attributes", column("trial_id"), column("key"), column("value_json"))
SYSTEM_FACTS = table("study_system_attributes", column("study_id"), column("key"), column("value_json"))
STATE = cast(TRIALS.c.state, String)
"""Of a trial; the column has an enum type of its own on PostgreSQL."""


def of_study(study: str) -> ColumnElement[bool]:
    """Return the condition that a row of `STUDIES` is a case of the study."""
    prefix = f"{study}/"
    return func.substr(STUDIES.c.study_name, 1, len(prefix)) == prefix


Rows = Sequence[Row[Any]]


def of_trials(
    execute: Callable[[Any], Rows], wanted: ColumnElement[bool], tables: Sequence[TableClause]
) -> Iterator[tuple[Row[Any], Sequence[Rows]]]:
    """Read the wanted trials, and yield each in the order of their ids with its rows of the other tables.

    `execute` returns all rows of an SQLAlchemy query. All queries have run before the first trial is yielded.
    """
    columns = (TRIALS.c.trial_id, TRIALS.c.number, TRIALS.c.study_id, STATE)
    times = (TRIALS.c.datetime_start, TRIALS.c.datetime_complete)
    trials = execute(select(*columns, *times).where(wanted).order_by(TRIALS.c.trial_id))
    ids = select(TRIALS.c.trial_id).where(wanted)
    others = [by_trial(execute(select(*one.c).where(one.c.trial_id.in_(ids)))) for one in tables] if trials else []
    return ((trial, [rows.get(trial.trial_id, ()) for rows in others]) for trial in trials)


def by_trial(rows: Rows) -> Mapping[int, Rows]:
    """Return the rows of each trial: trial id → rows."""
    grouped: dict[int, list[Row[Any]]] = defaultdict(list)
    for row in rows:
        grouped[row.trial_id].append(row)
    return grouped


def moment(stored: object) -> datetime | None:
    """Return a stored moment, which SQLite keeps as text; None where it is missing or damaged."""
    if isinstance(stored, datetime):
        return stored
    try:
        return datetime.fromisoformat(str(stored)) if stored else None
    except ValueError:
        return None
