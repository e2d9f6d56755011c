"""Diagnoses a study: reads it, adds what the user knows, and finds what keeps its GPUs from training."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Engine, and_, select

from tuner.diagnosis.causes import Cause, causes
from tuner.diagnosis.facts import Facts, gather
from tuner.diagnosis.own import read_own
from tuner.diagnosis.plain import read_plain
from tuner.diagnosis.record import Setup, StudyRecord
from tuner.diagnosis.startup import with_startups
from tuner.errors import EmptyStoreError
from tuner.export.database import reading
from tuner.kept.names import CASE
from tuner.kept.tables import FACTS, STUDIES, of_study
from tuner.urls import shown

NAMES_SHOWN = 10
"""The studies that a message names."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """What a study spent its time on, and why its GPUs did not train more."""

    facts: Facts
    causes: tuple[Cause, ...]
    """The largest first."""


def diagnose(engine: Engine, study: str, told: Setup | None = None) -> Diagnosis:
    """Diagnose a study of any Optuna program; `told` is what the user knows, and goes before the database.

    `study` is the name of an Optuna study, or of a study of `tuner`, whose cases are Optuna studies. Raises
    EmptyStoreError if there is no such study, or if none of its trials has ended.
    """
    record = _read(engine, study)
    if not record.trials:
        open_ones = f"{record.running} running, {record.waiting} waiting"
        raise EmptyStoreError(f"study {study!r} has no trial that has ended ({open_ones}); run it first")
    record = with_startups(replace(record, setup=(told or Setup()).or_else(record.setup)))
    facts = gather(record)
    return Diagnosis(facts=facts, causes=tuple(causes(facts, record.trials)))


def _read(engine: Engine, study: str) -> StudyRecord:
    is_case = and_(FACTS.c.study_id == STUDIES.c.study_id, FACTS.c.key == CASE)
    named = select(STUDIES.c.study_id, FACTS.c.key).outerjoin_from(STUDIES, FACTS, is_case)
    name, _, case = study.partition("/")
    with reading(engine) as connection:
        exact = connection.execute(named.where(STUDIES.c.study_name == study)).first()
        if exact is None and connection.execute(named.where(of_study(study))).first() is None:
            raise EmptyStoreError(
                f"{shown(engine.url)} has no study {study!r}; its studies are {_names(connection.scalars(_ALL).all())}"
            )
    if exact is None:
        return read_own(engine, study)
    return read_own(engine, name, case) if exact.key else read_plain(engine, study, exact.study_id)


_ALL = select(STUDIES.c.study_name).order_by(STUDIES.c.study_name)


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return f"{', '.join(names[:NAMES_SHOWN])}{more}" if names else "none"
