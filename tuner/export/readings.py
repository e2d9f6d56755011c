"""What the trials of a case say of its configs, from the database."""

from itertools import groupby
from operator import attrgetter

from sqlalchemy import Connection, and_, case, select

from tuner.export.database import (
    PROBE_OF_TRIAL,
    PROBES,
    RETRIES,
    RETRY_OF_TRIAL,
    STATE,
    TRIALS,
    VALUES,
    packed,
)
from tuner.export.records import COMPLETE, FINISHED, OK, PRUNED
from tuner.search.standing import Reading


def readings(connection: Connection, study_id: int) -> list[Reading]:
    """Give what a study's trials, known by their ids, say of their configs."""
    probe = packed(connection.engine)
    eligible = and_(STATE == COMPLETE, probe["ineligible"].as_string().is_(None))
    status = probe["status"].as_string()
    query = (
        select(
            TRIALS.c.trial_id.label("trial"),
            STATE.label("state"),
            probe["digest"].as_string().label("digest"),
            probe["warm"].as_boolean().label("warm"),
            case((status.not_in((OK, PRUNED)), status)).label("failure"),
            RETRIES.c.key.is_not(None).label("retry"),
            VALUES.c.value,
        )
        .join_from(TRIALS, PROBES, PROBE_OF_TRIAL)
        .outerjoin(RETRIES, RETRY_OF_TRIAL)
        .outerjoin(VALUES, and_(VALUES.c.trial_id == TRIALS.c.trial_id, eligible))
        .where(TRIALS.c.study_id == study_id, STATE.in_(FINISHED))
        .order_by(TRIALS.c.trial_id, VALUES.c.objective)
    )
    found: list[Reading] = []
    for _, rows in groupby(connection.execute(query).all(), key=attrgetter("trial")):
        row, *others = rows
        values = tuple(each.value for each in (row, *others))
        found.append(
            Reading(
                trial=row.trial,
                launch=row.digest,
                state=row.state,
                warm=bool(row.warm),
                failure=row.failure,
                retry=row.retry,
                values=None if None in values else values,
            )
        )
    return found
