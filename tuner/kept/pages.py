"""Reads the trials of a study from Optuna's tables, a page at a time, with a few queries for each page."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Row, TableClause, select

from tuner.kept.tables import ATTRIBUTES, STATE, TRIALS

PAGE_TRIALS = 1000
"""Trials whose rows are in memory at a time: on SQLite a read holds writers up, so none may last longer than a page."""

Execute = Callable[[Any], Sequence[Row[Any]]]
"""Returns all rows of an SQLAlchemy query."""
Others = Sequence[Sequence[Row[Any]]]
"""A trial's rows of each other table."""
_DATES = (TRIALS.c.datetime_start, TRIALS.c.datetime_complete)


def pages(
    execute: Execute,
    wanted: ColumnElement[bool],
    tables: Sequence[TableClause],
    *,
    keys: Sequence[str] | None = None,
    page_trials: int = PAGE_TRIALS,
) -> Iterator[tuple[Row[Any], Others]]:
    """Yield the row of each wanted trial, in the order of their ids, and its rows of all other tables.

    Of the attributes only those with the given `keys` are read, or all where `keys` is None.
    """
    query = select(TRIALS.c.trial_id, TRIALS.c.number, STATE, *_DATES).where(wanted).order_by(TRIALS.c.trial_id)
    page = execute(query.limit(page_trials))
    while page:
        first, last = page[0].trial_id, page[-1].trial_id
        these = select(TRIALS.c.trial_id).where(wanted, TRIALS.c.trial_id.between(first, last))
        others = [_by_trial(execute, table, these, keys if table is ATTRIBUTES else None) for table in tables]
        for row in page:
            yield row, [rows.get(row.trial_id, ()) for rows in others]
        if len(page) < page_trials:
            return
        page = execute(query.where(TRIALS.c.trial_id > last).limit(page_trials))


def _by_trial(
    execute: Execute, table: TableClause, trials: Any, keys: Sequence[str] | None
) -> Mapping[int, Sequence[Row[Any]]]:
    query = select(*table.c).where(table.c.trial_id.in_(trials))
    grouped: dict[int, list[Row[Any]]] = defaultdict(list)
    for row in execute(query if keys is None else query.where(table.c.key.in_(keys))):
        grouped[row.trial_id].append(row)
    return grouped
