"""Reads the trials of a study from Optuna's tables, a page at a time, with a few queries for each page."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Integer, Row, TableClause, bindparam, select

from tuner.kept.tables import ATTRIBUTES, STATE, TRIALS

PAGE_TRIALS = 1000
"""Trials whose rows are in memory at a time: on SQLite a read holds writers up, so none may last longer than a page."""

Execute = Callable[[Any, Mapping[str, object]], Sequence[Row[Any]]]
"""Returns all rows of an SQLAlchemy query with the given parameters."""
Others = Sequence[Sequence[Row[Any]]]
"""A trial's rows of each other table."""
_TRIAL = (TRIALS.c.trial_id, TRIALS.c.number, STATE, TRIALS.c.datetime_start, TRIALS.c.datetime_complete)
_FIRST, _LAST = bindparam("first_of_page", type_=Integer), bindparam("last_of_page", type_=Integer)


class Pages:
    """Reads the wanted trials; the queries are made once, because to make them takes longer than to run them."""

    def __init__(
        self,
        wanted: ColumnElement[bool],
        tables: Sequence[TableClause],
        *,
        keys: Sequence[str] | None = None,
        page_trials: int = PAGE_TRIALS,
    ) -> None:
        """Of the attributes only those with the given `keys` are read, or all where `keys` is None."""
        self._page_trials = page_trials
        self._page = select(*_TRIAL).where(wanted).order_by(TRIALS.c.trial_id).limit(page_trials)
        self._next_page = self._page.where(TRIALS.c.trial_id > _LAST)
        these = select(TRIALS.c.trial_id).where(wanted, TRIALS.c.trial_id.between(_FIRST, _LAST))
        self._others = [_rows(table, these, keys if table is ATTRIBUTES else None) for table in tables]

    def read(self, execute: Execute, **wanted: object) -> Iterator[tuple[Row[Any], Others]]:
        """Yield the row of each trial, in the order of their ids, and its rows of all other tables.

        `wanted`: the values of the parameters in the condition.
        """
        page = execute(self._page, wanted)
        while page:
            bounds = {_FIRST.key: page[0].trial_id, _LAST.key: page[-1].trial_id}
            others = [_by_trial(execute(query, {**wanted, **bounds})) for query in self._others]
            for row in page:
                yield row, [rows.get(row.trial_id, ()) for rows in others]
            if len(page) < self._page_trials:
                return
            page = execute(self._next_page, {**wanted, _LAST.key: bounds[_LAST.key]})


def _rows(table: TableClause, trials: Any, keys: Sequence[str] | None) -> Any:
    query = select(*table.c).where(table.c.trial_id.in_(trials))
    return query if keys is None else query.where(table.c.key.in_(keys))


def _by_trial(rows: Sequence[Row[Any]]) -> Mapping[int, Sequence[Row[Any]]]:
    grouped: dict[int, list[Row[Any]]] = defaultdict(list)
    for row in rows:
        grouped[row.trial_id].append(row)
    return grouped
