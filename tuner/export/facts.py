"""Reads what the study of a case keeps beside its trials: the rungs of its ladder, and why the case ended."""

import json

from sqlalchemy import Engine, and_, func, select

from tuner.export.database import FACTS, STUDIES, reading
from tuner.kept.names import ENDED, RUNGS
from tuner.kept.study import KeptStudy


def fixed_rungs(engine: Engine, study: str) -> dict[str, tuple[int, ...]]:
    """Return the rungs of each case whose `auto` ladder has rungs; empty where there is no such study."""
    return {case: kept.rungs for case, kept in _kept(engine, study, RUNGS).items() if kept.rungs}


def reasons_to_end(engine: Engine, study: str) -> dict[str, str]:
    """Return why nothing was left to probe, for each case that has ended by itself and has not gone on since."""
    return {case: kept.ended for case, kept in _kept(engine, study, ENDED).items() if kept.ended}


def _kept(engine: Engine, study: str, name: str) -> dict[str, KeptStudy]:
    """Return the case → its study, for each study that has this attribute, in the order of their start."""
    prefix = f"{study}/"
    query = (
        select(STUDIES.c.study_name, FACTS.c.value_json)
        .join_from(STUDIES, FACTS, and_(FACTS.c.study_id == STUDIES.c.study_id, FACTS.c.key == name))
        .where(func.substr(STUDIES.c.study_name, 1, len(prefix)) == prefix)
        .order_by(STUDIES.c.study_id)
    )
    with reading(engine) as connection:
        return {
            case.removeprefix(prefix): KeptStudy({name: json.loads(value)}) for case, value in connection.execute(query)
        }
