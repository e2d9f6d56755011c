"""Says which probes of a study run on which machine."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from tuner.kept.names import LEASE
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


def running(storage: TrialStorage, study: str) -> list[Neighbour]:
    """Return the probes of all cases of a study that run now. A trial whose process is gone is left out."""
    query = (
        select(TRIALS.c.trial_id, STUDIES.c.study_name, ATTRIBUTES.c.value_json)
        .join_from(TRIALS, STUDIES, STUDIES.c.study_id == TRIALS.c.study_id)
        .join(ATTRIBUTES, ATTRIBUTES.c.trial_id == TRIALS.c.trial_id)
        .where(of_study(study), STATE == RUNNING, ATTRIBUTES.c.key == LEASE)
        .order_by(TRIALS.c.trial_id)
    )
    rows: Sequence[Any] = storage.rows(query)
    leased = ((row, Lease.read(read_json(row.value_json))) for row in rows)
    return [
        Neighbour(trial=row.trial_id, case=row.study_name, is_here=lease.is_here())
        for row, lease in leased
        if lease and lease.held()
    ]
