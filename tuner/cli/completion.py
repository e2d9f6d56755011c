"""What a shell offers after `--study` and `--cases` when the user presses Tab."""

from collections.abc import Iterable

import typer

from tuner.errors import TunerError
from tuner.study.load import load, names
from tuner.trainers.registry import open_trainer


def studies(incomplete: str) -> list[str]:
    """Return the names of studies that begin so. Where none does, the shell itself offers files."""
    return [name for name in names() if name.startswith(incomplete)]


def cases(context: typer.Context, incomplete: str) -> list[str]:
    """Return the trainable cases of the study on the line whose name begins so, after any others and a comma."""
    before, comma, begun = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in _cases(context.params.get("study")) if name.startswith(begun)]


def _cases(study: str | None) -> Iterable[str]:
    if study is None:
        return []
    try:
        known = open_trainer(load(study, to_show=True).trainer).cases()
    except (TunerError, OSError):  # a message would stand amid the line that the user types
        return []
    return [case.name for case in known if case.trainable]
