"""Begins the study of a case in the database, or resumes it with unchanged settings."""

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import optuna
from optuna.pruners import BasePruner
from optuna.study import StudyDirection

from tuner.errors import StoreError
from tuner.kept.identity import without_idle_pruner
from tuner.kept.names import IDENTITY
from tuner.kept.study import KeptStudy
from tuner.store.database import Database


def check_study(database: Database, name: str, identity: dict[str, Any]) -> None:
    """Raise StoreError if the study called `name` exists and has another identity. This begins no study."""
    with database.reported():
        try:
            study_id = database.storage.get_study_id_from_name(name)
        except KeyError:  # there is no such study yet
            return
        known = KeptStudy(database.storage.get_study_user_attrs(study_id)).identity
    if known is not None:
        _check_identity(known, identity, study=name, shown_url=database.shown_url)


def open_study(
    database: Database, name: str, *, objectives: Sequence[str], pruner: BasePruner, identity: dict[str, Any]
) -> optuna.Study:
    """Return the study called `name`, which maximises each of the objectives. It still has Optuna's default sampler.

    Raises StoreError that names what differs from the identity with which the study was begun.
    """
    study = optuna.create_study(
        study_name=name,
        storage=database.storage,
        directions=[StudyDirection.MAXIMIZE] * len(objectives),
        pruner=pruner,
        load_if_exists=True,
    )
    known = KeptStudy(study.user_attrs).identity
    if known is None:
        study.set_user_attr(IDENTITY, identity)
    else:
        _check_identity(known, identity, study=name, shown_url=database.shown_url)
    if len(objectives) > 1:
        _name_values(study, objectives)
    return study


def _name_values(study: optuna.Study, objectives: Sequence[str]) -> None:
    """Name the values of each trial, because the dashboard otherwise shows numbers for names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study.set_metric_names(list(objectives))


def _check_identity(known: dict[str, Any], now: dict[str, Any], *, study: str, shown_url: str) -> None:
    """Raise StoreError if the settings differ from those with which the study was started; it names the differences."""
    if changed := list(_changes(without_idle_pruner(known), now)):
        raise StoreError(
            f"study {study} in {shown_url} was started with other settings:\n"
            + "\n".join(changed)
            + "\nrestore these settings to resume the study; to start anew, choose another --runs folder (and another "
            "--storage if you use it), or change `name:` in the study file"
        )


def _changes(known: object, now: object, where: str = "") -> Iterator[str]:
    if isinstance(known, dict) and isinstance(now, dict):
        for name in sorted(known.keys() | now.keys()):
            yield from _changes(known.get(name), now.get(name), f"{where}.{name}".lstrip("."))
    elif known != now:
        yield f"  {where}: was {known!r}, is {now!r}"
