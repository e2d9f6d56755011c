"""Reads what the study of a case keeps beside its trials: its rungs, its batch size, and why the case ended."""

from sqlalchemy import Engine, and_, select

from tuner.export.database import reading
from tuner.kept.names import BATCH, ENDED, RUNGS
from tuner.kept.storable import read_json
from tuner.kept.study import KeptStudy
from tuner.kept.tables import FACTS, STUDIES, of_study
from tuner.study.batch import BatchFit


def fixed_rungs(engine: Engine, study: str) -> dict[str, tuple[int, ...]]:
    """Return the rungs of each case whose `auto` ladder has rungs; empty where there is no such study."""
    return {case: kept.rungs for case, kept in _kept(engine, study, RUNGS).items() if kept.rungs}


def fitted_batches(engine: Engine, study: str) -> dict[str, BatchFit]:
    """Return the batch size of each case whose batch size is `auto` and known; empty where there is no such study."""
    return {case: kept.batch for case, kept in _kept(engine, study, BATCH).items() if kept.batch}


def reasons_to_end(engine: Engine, study: str) -> dict[str, str]:
    """Return why nothing was left to probe, for each case that has ended by itself and has not gone on since."""
    return {case: kept.ended for case, kept in _kept(engine, study, ENDED).items() if kept.ended}


def _kept(engine: Engine, study: str, name: str) -> dict[str, KeptStudy]:
    """Return the case → its study, for each study that has this attribute, in the order of their start."""
    query = (
        select(STUDIES.c.study_name, FACTS.c.value_json)
        .join_from(STUDIES, FACTS, and_(FACTS.c.study_id == STUDIES.c.study_id, FACTS.c.key == name))
        .where(of_study(study))
        .order_by(STUDIES.c.study_id)
    )
    with reading(engine) as connection:
        rows = connection.execute(query).all()
    return {case.removeprefix(f"{study}/"): KeptStudy({name: read_json(document)}) for case, document in rows}
