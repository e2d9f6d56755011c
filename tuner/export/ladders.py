"""The rungs that a study has made for `auto` ladders, straight from its database."""

import json

from sqlalchemy import Engine, and_, func, select

from tuner.export.database import FACTS, STUDIES, reading
from tuner.search.calibration import RUNGS


def fixed_rungs(engine: Engine, study: str) -> dict[str, tuple[int, ...]]:
    """Give the rungs of each case that has had its `auto` ladder made; empty where there is no such study."""
    prefix = f"{study}/"
    query = (
        select(STUDIES.c.study_name, FACTS.c.value_json)
        .join_from(STUDIES, FACTS, and_(FACTS.c.study_id == STUDIES.c.study_id, FACTS.c.key == RUNGS))
        .where(func.substr(STUDIES.c.study_name, 1, len(prefix)) == prefix)
        .order_by(STUDIES.c.study_id)
    )
    with reading(engine) as connection:
        return {name.removeprefix(prefix): tuple(json.loads(rungs)) for name, rungs in connection.execute(query)}
