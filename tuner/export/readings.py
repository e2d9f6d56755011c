"""The Pareto front of a case with several objectives, from its readings in the database."""

from collections.abc import Collection
from itertools import chain, groupby
from operator import itemgetter

from sqlalchemy import Connection, and_, select

from tuner.export.database import PROBE_OF_TRIAL, PROBES, STATE, TRIALS, VALUES, packed
from tuner.export.records import COMPLETE, JUDGED
from tuner.search.front import Reading, front


def front_trials(connection: Connection, studies: Collection[int]) -> list[int]:
    """Give the ids of the trials on the front of each study, those with most of its first objective first."""
    probe = packed(connection.engine)
    eligible = and_(STATE == COMPLETE, probe["ineligible"].as_string().is_(None))
    query = (
        select(
            TRIALS.c.study_id,
            TRIALS.c.trial_id,
            probe["digest"].as_string(),
            probe["warm"].as_boolean(),
            VALUES.c.value,
        )
        .join_from(TRIALS, PROBES, PROBE_OF_TRIAL)
        .outerjoin(VALUES, and_(VALUES.c.trial_id == TRIALS.c.trial_id, eligible))
        .where(TRIALS.c.study_id.in_(list(studies)), STATE.in_(JUDGED))
        .order_by(TRIALS.c.study_id, TRIALS.c.trial_id, VALUES.c.objective)
    )
    readings: dict[int, list[Reading]] = {}
    for (study, trial, digest, warm), rows in groupby(connection.execute(query).all(), key=itemgetter(0, 1, 2, 3)):
        values = tuple(row.value for row in rows)
        known = None if None in values else values
        readings.setdefault(study, []).append(Reading(trial=trial, launch=digest, warm=bool(warm), values=known))
    return [one.trial for one in chain.from_iterable(map(front, readings.values()))]
