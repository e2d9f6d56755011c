"""Reads from the database what the trials of a case say about its configs."""

from itertools import groupby
from operator import attrgetter

from sqlalchemy import Connection, select

from tuner.export.database import (
    PROBE_OF_TRIAL,
    PROBES,
    RETRIES,
    RETRY_OF_TRIAL,
    STATE,
    TRIALS,
    VALUES,
    probe_columns,
)
from tuner.export.records import FINISHED
from tuner.kept.trial import failure_of
from tuner.search.standing import Reading, counted


def stored_readings(connection: Connection, study_id: int) -> list[Reading]:
    """Return what each ended trial of a study says about its config. The number of a trial is its id."""
    probe = probe_columns(connection.engine)
    query = (
        select(
            TRIALS.c.trial_id.label("trial"),
            STATE.label("state"),
            probe.digest.label("digest"),
            probe.warm.label("warm"),
            probe.status.label("status"),
            probe.samples_per_s.label("samples_per_s"),
            probe.ineligible.is_not(None).label("ineligible"),
            RETRIES.c.key.is_not(None).label("retry"),
            VALUES.c.value,
        )
        .join_from(TRIALS, PROBES, PROBE_OF_TRIAL)
        .outerjoin(RETRIES, RETRY_OF_TRIAL)
        .outerjoin(VALUES, VALUES.c.trial_id == TRIALS.c.trial_id)
        .where(TRIALS.c.study_id == study_id, STATE.in_(FINISHED))
        .order_by(TRIALS.c.trial_id, VALUES.c.objective)
    )
    found: list[Reading] = []
    for _, rows in groupby(connection.execute(query).all(), key=attrgetter("trial")):
        row, *others = rows
        values = [each.value for each in (row, *others)]
        found.append(
            Reading(
                trial=row.trial,
                launch=row.digest,
                state=row.state,
                warm=bool(row.warm),
                failure=failure_of(row.status),
                retry=row.retry,
                values=counted(None if None in values else values, state=row.state, ineligible=row.ineligible),
                samples_per_s=row.samples_per_s,
            )
        )
    return found
