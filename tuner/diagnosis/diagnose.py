"""Diagnoses a study: reads it, adds what the user knows, and finds what keeps its GPUs from training."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Engine, and_, select

from tuner.diagnosis.causes import Cause, causes
from tuner.diagnosis.facts import Facts, gather
from tuner.diagnosis.own import read_own
from tuner.diagnosis.plain import loader_workers, read_plain
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


def diagnose(engine: Engine, study: str, told: Setup | None = None, *, hours_left: float | None = None) -> Diagnosis:
    """Diagnose a study of any Optuna program; `told` is what the user knows, and goes before the database.

    With `hours_left`, the study still runs for so long, and each cause says whether to stop it for the change.

    `study` is the name of an Optuna study, or of a study of `tuner`, whose cases are Optuna studies. Raises
    EmptyStoreError if there is no such study, or if none of its trials has ended.
    """
    record = _read(engine, study)
    if not record.trials:
        open_ones = f"{record.running} running, {record.waiting} waiting"
        raise EmptyStoreError(f"study {study!r} has no trial that has ended ({open_ones}); run it first")
    record = with_startups(replace(record, setup=(told or Setup()).or_else(record.setup)))
    facts = gather(record)
    return Diagnosis(facts=facts, causes=tuple(causes(facts, record.trials, hours_left)))


def _read(engine: Engine, study: str) -> StudyRecord:
    is_case = and_(FACTS.c.study_id == STUDIES.c.study_id, FACTS.c.key == CASE)
    named = select(STUDIES.c.study_id, FACTS.c.key).outerjoin_from(STUDIES, FACTS, is_case)
    name, _, case = study.partition("/")
    with reading(engine) as connection:
        exact = connection.execute(named.where(STUDIES.c.study_name == study)).first()
        cases = [exact] if exact else connection.execute(named.where(of_study(study))).all()
        workers = loader_workers(connection, [one.study_id for one in cases])
    if not cases:
        raise EmptyStoreError(f"{shown(engine.url)} has no study {study!r}; {studies_in(engine)}")
    if exact and not exact.key:
        return read_plain(engine, study, exact.study_id)
    own = read_own(engine, name, case if exact else None)
    ranks = own.setup.gpus.value if own.setup.gpus else 1
    of_trial = workers and replace(workers, value=workers.value * ranks)
    return replace(own, setup=own.setup.or_else(Setup(loader_workers=of_trial)))


def studies_in(engine: Engine) -> str:
    """Return the names of a database's studies, and how to diagnose one of them."""
    with reading(engine) as connection:
        names = connection.scalars(_ALL).all()
    return f"its studies are {_names(names)}" + ("; name one with --study-name" if names else "")


_ALL = select(STUDIES.c.study_name).order_by(STUDIES.c.study_name)


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return f"{', '.join(names[:NAMES_SHOWN])}{more}" if names else "none"
