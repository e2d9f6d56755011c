"""What the study database stores, and how: Optuna's tables, the names of attributes, and JSON of any database."""

import json
import math
import re
from collections.abc import Callable, Container, Iterator, Sequence
from datetime import datetime
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import ColumnElement, Row, String, TableClause, cast, column, func, select, table

from tuner.study import grouped

PROBE = "probe"
"""Trial attribute: the record of the probe, as `trial.encode` writes it."""
LEASE = "lease"
"""Trial attribute: which process runs the trial, as `tuner.store.leases.Lease.write` gives it."""
RETRY = "retry"
"""Trial attribute, of a failed trial: its config is to be probed again."""
CONFIRMS = "confirms"
"""Trial attribute: the trainer's plain command measures a config again that a session has measured."""
SOAKS = "soaks"
"""Trial attribute: the trial shows whether a config's memory lasts. Its objectives do not count where others do.

It holds what was soaked, as `trial.SoakSettings`.
"""
REPORTED_OOM = "told"
"""Trial attribute: the user has reported that a training with the config ran out of memory.

It is the parameter with whose value memory grows, or empty.
"""
ORIGIN = "origin"
"""Trial attribute: the name of the other case in which the trial's config is the best."""
ERROR = "error"
"""Trial attribute: the standard error of a complete trial's value."""

COST = "cost"
"""Trial attribute of other programs, which store no probe record: what the probe took, as `trial.cost` returns it."""

CASE = "case"
"""Study attribute: the record of the case, as `case_record.encode` writes it."""
IDENTITY = "identity"
"""Study attribute: the settings that must not change while the study goes on."""
REPAIRED = "mended"
"""Study attribute: the number of trials from before the set-up was repaired. They say nothing about their configs."""
LONGER = "longer"
"""Study attribute: the number of trials from before a time limit of `probe` was raised. Those too slow do not count."""
ENDED = "ended"
"""Study attribute: why nothing was left that is worth a probe; None again once the case goes on."""
STOPPED = "stopped"
"""Study attribute: how the search stopped before it had ended, and how it goes on; None again once it goes on."""
BEST_IS = "best_is"
"""Study attribute, for other tools: the best, where Optuna's best trial is another or has another value; else None."""
RUNGS = "rungs"
"""Study attribute: the rungs of an `auto` ladder, fixed once they have been made."""
RACE = "race."
"""Beginning of the study attributes that hold the runs of a race; the number of the run follows."""

MEMORY = "memory_gib"
"""Constraint: the device memory that was missing, in GiB."""
INELIGIBLE = "ineligible"
"""Constraint, 1 for a complete trial that must not be the best; also the status of such a trial in summaries."""


def _table(name: str, columns: str) -> TableClause:
    """Return a table of Optuna with these columns, which are separated by spaces."""
    return table(name, *map(column, columns.split()))


STUDIES = table("studies", column("study_id"), column("study_name", String))
DIRECTIONS = _table("study_directions", "study_id objective direction")
FACTS = _table("study_user_attributes", "study_id key value_json")
SYSTEM_FACTS = _table("study_system_attributes", "study_id key value_json")
TRIALS = _table("trials", "trial_id number study_id state datetime_start datetime_complete")
PARAMETERS = _table("trial_params", "trial_id param_id param_name param_value distribution_json")
VALUES = _table("trial_values", "trial_id objective value")
STEPS = _table("trial_intermediate_values", "trial_id step intermediate_value")
ATTRIBUTES = _table("trial_user_attributes", "trial_id key value_json")
CONSTRAINTS = _table("trial_system_attributes", "trial_id key value_json")
STATE = cast(TRIALS.c.state, String)
"""Of a trial; the column has an enum type of its own on PostgreSQL."""


def is_case_of(study: str) -> ColumnElement[bool]:
    """Return the SQL condition that a row of `STUDIES` is a case of the study, which is named STUDY/CASE."""
    prefix = f"{study}/"
    return func.substr(STUDIES.c.study_name, 1, len(prefix)) == prefix  # unlike LIKE, it has no wildcards


Rows = Sequence[Row[Any]]


class TrialQueries(NamedTuple):
    """The SQL queries that read some trials: see `trial_queries`."""

    trials: Any
    """The query of the trials."""
    tables: Sequence[Any]
    """For each further table, the query of the trials' rows in it."""


def trial_queries(wanted: ColumnElement[bool], tables: Sequence[TableClause]) -> TrialQueries:
    """Return the queries by which `trials_with_rows` reads the trials that are `wanted`, with their rows in `tables`.

    To build the queries takes about as long as to read a few trials. So a caller that reads often builds them once.
    """
    columns = (TRIALS.c.trial_id, TRIALS.c.number, TRIALS.c.study_id, STATE)
    times = (TRIALS.c.datetime_start, TRIALS.c.datetime_complete)
    ids = select(TRIALS.c.trial_id).where(wanted)
    return TrialQueries(
        trials=select(*columns, *times).where(wanted).order_by(TRIALS.c.trial_id),
        tables=[select(*rows.c).where(rows.c.trial_id.in_(ids)) for rows in tables],
    )


class TrialRows(NamedTuple):
    """What the tables of Optuna hold of one trial."""

    trial: Row[Any]
    """The trial's row in `TRIALS`."""
    details: Sequence[Rows]
    """Its rows in each further table."""


def trials_with_rows(
    execute: Callable[[Any], Rows], queries: TrialQueries, unread: Container[str] = ()
) -> Iterator[TrialRows]:
    """Return an iterator over the wanted trials in the order of their ids, each with its rows of each further table.

    All queries run when this function is called, before the caller asks for the first trial.

    Args:
        execute: Returns all rows of an SQLAlchemy query.
        queries: The queries of the wanted trials.
        unread: The states of trials whose rows in further tables the caller does not need. If all wanted trials have
            such states, these tables are not queried.
    """
    trials = execute(queries.trials)
    needed = queries.tables if any(trial.state not in unread for trial in trials) else ()
    tables = [grouped(execute(query), attrgetter("trial_id")) for query in needed]
    return (TrialRows(trial, [rows.get(trial.trial_id, ()) for rows in tables]) for trial in trials)


def moment(stored: object) -> datetime | None:
    """Return a stored date and time, which SQLite keeps as text; None where it is missing or damaged."""
    if isinstance(stored, datetime):
        return stored
    try:
        return datetime.fromisoformat(str(stored)) if stored else None
    except ValueError:
        return None


MOST_CHARACTERS = 20_000
"""A longer text is stored without its middle."""
MOST = 2**63
"""Whole numbers from here on are not kept; the bound is above every number that is measured."""
UNREADABLE = "\ufffd"
"""Stands for a character that no database and no file can store: half of a surrogate pair, and NUL."""
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def storable(value: Any) -> Any:
    """Return a value of JSON that every database can store and every program can read.

    JSON has no infinity and no NaN, and other programs read whole numbers of 64 bits at most: a number beyond becomes
    None. Characters that cannot be stored become `UNREADABLE`.
    """
    match value:
        case str():
            return storable_text(value)
        case dict():
            return {storable(key): storable(part) for key, part in value.items()}
        case list() | tuple():
            return [storable(part) for part in value]
        case int() if abs(value) >= MOST:
            return None
        case float() if not math.isfinite(value):
            return None
        case _:
            return value


def storable_text(text: str) -> str:
    """Return a text that every database can store: without its middle if it is long, and without some characters."""
    if len(text) > MOST_CHARACTERS:
        half = MOST_CHARACTERS // 2 - 1
        text = f"{text[:half]} … {text[len(text) - half + 1 :]}"
    return _UNSTORABLE.sub(UNREADABLE, text)


_DECODER = json.JSONDecoder(
    parse_float=lambda text: storable(float(text)),
    parse_int=lambda text: storable(int(text)),
    parse_constant=lambda _: None,
)
"""Reads JSON whose numbers are then storable."""


def read_json(document: object) -> Any:
    """Return the storable value of a JSON text; None where it is no JSON, or nested too deeply."""
    try:
        if isinstance(document, bytes):
            return storable(json.loads(document))
        if not isinstance(document, str):
            return None
        value = _DECODER.decode(document)  # its numbers are storable
        # a short document in ASCII without escapes has only texts that can be stored, which need no check
        has_storable_texts = len(document) <= MOST_CHARACTERS and document.isascii() and "\\u" not in document
        return value if has_storable_texts else storable(value)
    except (ValueError, RecursionError):
        return None


Record = TypeVar("Record")


def record_of(form: type[Record], attribute: object) -> Record | None:
    """Return the record of this form that an attribute holds; None where it has another form."""
    try:
        return adapter(form).validate_python(attribute)
    except (ValidationError, TypeError, RecursionError):
        return None


@cache
def adapter(form: type[Record]) -> TypeAdapter[Record]:
    """Return pydantic's reader of records of this form, which is made once because that takes long."""
    return TypeAdapter(form)
