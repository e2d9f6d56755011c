"""Says which probes of a study run on which machine, and how many ran beside another probe."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, and_, or_, select

from tuner.kept.names import CONFIRMS, LEASE
from tuner.kept.storable import read_json
from tuner.kept.tables import ATTRIBUTES, STATE, STUDIES, TRIALS, of_study
from tuner.store.leases import Lease
from tuner.store.storage import TrialStorage

RUNNING = "RUNNING"


@dataclass(frozen=True, kw_only=True, slots=True)
class Neighbour:
    """A probe that a living process runs now."""

    trial: int
    """The id of its trial in the database."""
    case: str
    """The name of the case's study."""
    is_here: bool
    """Whether it runs on this machine."""
    confirms: bool
    """Whether it measures the best of its case again."""


def running(storage: TrialStorage, study: str) -> list[Neighbour]:
    """Return the probes of all cases of a study that run now. A trial whose process is gone is left out."""
    return [
        Neighbour(trial=trial, case=case, is_here=lease.is_here(), confirms=confirms)
        for trial, case, lease, confirms in _leased(storage, study, STATE == RUNNING)
        if lease.held()
    ]


def beside(storage: TrialStorage, study: str, trial: int) -> int:
    """Return how many other probes of a study have run on this machine since the trial with this id began."""
    begun = select(TRIALS.c.datetime_start).where(TRIALS.c.trial_id == trial).scalar_subquery()
    since = or_(STATE == RUNNING, TRIALS.c.datetime_complete > begun)
    others = _leased(storage, study, and_(since, TRIALS.c.trial_id != trial))
    return sum(lease.is_here() for _, _, lease, _ in others)


def _leased(storage: TrialStorage, study: str, wanted: ColumnElement[bool]) -> Iterator[tuple[int, str, Lease, bool]]:
    """Yield id, case, lease and whether it confirms of each wanted trial that has a lease."""
    query = (
        select(TRIALS.c.trial_id, STUDIES.c.study_name, ATTRIBUTES.c.key, ATTRIBUTES.c.value_json)
        .join_from(TRIALS, STUDIES, STUDIES.c.study_id == TRIALS.c.study_id)
        .join(ATTRIBUTES, ATTRIBUTES.c.trial_id == TRIALS.c.trial_id)
        .where(of_study(study), wanted, ATTRIBUTES.c.key.in_([LEASE, CONFIRMS]))
        .order_by(TRIALS.c.trial_id)
    )
    rows: Sequence[Any] = storage.rows(query)
    confirming = {row.trial_id for row in rows if row.key == CONFIRMS}
    for row in rows:
        if row.key == LEASE and (lease := Lease.read(read_json(row.value_json))):
            yield row.trial_id, row.study_name, lease, row.trial_id in confirming
