"""Says which probes of a study run now, and on which machine."""

from dataclasses import dataclass

from sqlalchemy import select

from tuner.kept.names import CONFIRMS, LEASE
from tuner.kept.storable import read_json
from tuner.kept.tables import ATTRIBUTES, STATE, STUDIES, TRIALS, of_study
from tuner.kept.trial import RUNNING
from tuner.store.leases import Lease
from tuner.store.storage import TrialStorage


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
    query = (
        select(TRIALS.c.trial_id, STUDIES.c.study_name, ATTRIBUTES.c.key, ATTRIBUTES.c.value_json)
        .join_from(TRIALS, STUDIES, STUDIES.c.study_id == TRIALS.c.study_id)
        .join(ATTRIBUTES, ATTRIBUTES.c.trial_id == TRIALS.c.trial_id)
        .where(of_study(study), STATE == RUNNING, ATTRIBUTES.c.key.in_([LEASE, CONFIRMS]))
        .order_by(TRIALS.c.trial_id)
    )
    rows = storage.rows(query)
    confirming = {row.trial_id for row in rows if row.key == CONFIRMS}
    leases = [(row, Lease.read(read_json(row.value_json))) for row in rows if row.key == LEASE]
    return [
        Neighbour(
            trial=row.trial_id,
            case=row.study_name,
            is_here=lease.is_here(),
            confirms=row.trial_id in confirming,
        )
        for row, lease in leases
        if lease and lease.held()
    ]
