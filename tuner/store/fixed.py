"""Values of a case that are `auto`: its study keeps them once they have been made."""

from collections.abc import Callable
from typing import TypeVar

from optuna.study import Study

from tuner.kept.study import KeptStudy

Made = TypeVar("Made")


def fixed(
    study: Study,
    name: str,
    known: Callable[[KeptStudy], Made | None],
    make: Callable[[], Made],
    form: Callable[..., object],
) -> Made:
    """Return what a study keeps as the attribute `name`. If it keeps nothing, `make` makes it, and it keeps its `form`.

    Nothing is kept if `make` returns None.
    """
    if (kept := known(KeptStudy(study.user_attrs))) is not None:
        return kept
    if (made := make()) is not None:
        study.set_user_attr(name, form(made))
    return made
