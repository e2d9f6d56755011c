"""The trials of a case, as the database has them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row

from tuner.export.records import COMPLETE, FINISHED, CaseRecord, TrialRecord
from tuner.kept.names import LEASE, PROBE, RETRY
from tuner.kept.pages import Pages
from tuner.kept.probe import KeptProbe, decode_json
from tuner.kept.tables import ATTRIBUTES, VALUES
from tuner.kept.trial import is_kept

_KEYS = (PROBE, RETRY, LEASE)


class StoredTrial(NamedTuple):
    """A trial, and what only the search asks of it."""

    trial_id: int
    trial: TrialRecord
    retry: bool
    """Whether it failed and its config is asked again."""
    values: tuple[float, ...]
    """Each objective."""


def stored_trials(
    connection: Connection, case: CaseRecord, wanted: ColumnElement[bool], *, page_trials: int
) -> Iterator[StoredTrial | None]:
    """Yield the wanted trials of a case; None for a trial of another program, or one whose record is damaged."""

    def execute(query: Any, parameters: Mapping[str, object]) -> Sequence[Row[Any]]:
        connection.rollback()  # let go of locks and snapshot while the page before is worked on
        return connection.execute(query, parameters).all()

    found = Pages(wanted, (VALUES, ATTRIBUTES), keys=_KEYS, page_trials=page_trials).read(execute)
    return (_stored(case, row, *others) for row, others in found)


def _stored(
    case: CaseRecord, row: Row[Any], values: Sequence[Row[Any]], attributes: Sequence[Row[Any]]
) -> StoredTrial | None:
    documents = {one.key: one.value_json for one in attributes}
    probe = decode_json(documents.get(PROBE))
    numbers = tuple(one.value for one in sorted(values, key=lambda one: one.objective) if _is_number(one.value))
    if not (isinstance(row.number, int) and is_kept(documents, probe, finished=row.state in FINISHED)):
        return None
    if row.state == COMPLETE and len(numbers) != len(case.objectives):
        return None
    trial = TrialRecord(
        case=case.name,
        number=row.number,
        state=row.state,
        value=numbers[0] if numbers else None,
        started=moment(row.datetime_start),
        completed=moment(row.datetime_complete),
        probe=probe or KeptProbe(),
    )
    return StoredTrial(row.trial_id, trial, RETRY in documents, numbers)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def moment(stored: object) -> datetime | None:
    """Return a stored moment, which SQLite keeps as text; None where it is missing or damaged."""
    if isinstance(stored, datetime):
        return stored
    try:
        return datetime.fromisoformat(str(stored)) if stored else None
    except ValueError:
        return None
