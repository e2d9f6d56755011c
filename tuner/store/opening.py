"""A case's study in the database: begun, or resumed with the settings that it was begun with."""

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import optuna
from optuna.pruners import BasePruner
from optuna.study import StudyDirection

from tuner.errors import StoreError
from tuner.store.database import Database
from tuner.store.records import IDENTITY


def open_study(
    database: Database, name: str, *, objectives: Sequence[str], pruner: BasePruner, identity: dict[str, Any]
) -> optuna.Study:
    """Give the study called `name`, which maximises each of the objectives; Optuna's own sampler is still in it.

    Raises StoreError naming what differs from the identity that it was begun with.
    """
    study = optuna.create_study(
        study_name=name,
        storage=database.storage,
        directions=[StudyDirection.MAXIMIZE] * len(objectives),
        pruner=pruner,
        load_if_exists=True,
    )
    known = study.user_attrs.get(IDENTITY)
    if known is None:
        study.set_user_attr(IDENTITY, identity)
    elif changed := list(_changes(known, identity)):
        raise StoreError(
            f"study {name} in {database.shown_url} was started with other settings:\n"
            + "\n".join(changed)
            + "\nrestore them to resume it, or give the study file another `name:` to start anew"
        )
    if len(objectives) > 1:
        _name_values(study, objectives)
    return study


def _name_values(study: optuna.Study, objectives: Sequence[str]) -> None:
    """Name the values of each trial, which the dashboard otherwise numbers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study.set_metric_names(list(objectives))


def _changes(known: object, now: object, where: str = "") -> Iterator[str]:
    if isinstance(known, dict) and isinstance(now, dict):
        for name in sorted(known.keys() | now.keys()):
            yield from _changes(known.get(name), now.get(name), f"{where}.{name}".lstrip("."))
    elif known != now:
        yield f"  {where}: was {known!r}, is {now!r}"
