"""What the trials of a case say of its configs, from the database."""

from itertools import groupby
from operator import itemgetter

from sqlalchemy import Connection, and_, select

from tuner.export.database import PROBE_OF_TRIAL, PROBES, STATE, TRIALS, VALUES, packed
from tuner.export.records import COMPLETE, JUDGED
from tuner.search.standing import Reading


def readings(connection: Connection, study_id: int) -> list[Reading]:
    """Give what a study's trials, known by their ids, say of their configs."""
    probe = packed(connection.engine)
    eligible = and_(STATE == COMPLETE, probe["ineligible"].as_string().is_(None))
    query = (
        select(TRIALS.c.trial_id, probe["digest"].as_string(), probe["warm"].as_boolean(), VALUES.c.value)
        .join_from(TRIALS, PROBES, PROBE_OF_TRIAL)
        .outerjoin(VALUES, and_(VALUES.c.trial_id == TRIALS.c.trial_id, eligible))
        .where(TRIALS.c.study_id == study_id, STATE.in_(JUDGED))
        .order_by(TRIALS.c.trial_id, VALUES.c.objective)
    )
    found: list[Reading] = []
    for (trial, digest, warm), rows in groupby(connection.execute(query).all(), key=itemgetter(0, 1, 2)):
        values = tuple(row.value for row in rows)
        known = None if None in values else values
        found.append(Reading(trial=trial, launch=digest, warm=bool(warm), values=known))
    return found
