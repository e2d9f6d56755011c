"""Checks of where a study keeps things: its database and the room for its files."""

import os
import shutil
from pathlib import Path

from sqlalchemy import inspect

from tuner.checkup.finding import Finding, fine, problem, warning
from tuner.export.database import connect, engine_at, reading
from tuner.units import MIB_PER_GIB, mib
from tuner.urls import shown


def check_storage(url: str) -> Finding:
    """Say whether the database answers and holds studies, or can be created; it is left as it is.

    Raises StoreError when it cannot be reached or holds something else.
    """
    engine = engine_at(url)
    if engine.dialect.name == "sqlite":
        file = Path(engine.url.database or "")
        for place in (_nearest(file.parent), file, Path(f"{file}.lock")):
            if place.exists() and not os.access(place, os.W_OK):
                return problem("storage", f"{place} is not writable; name another database with --storage")
        if not file.exists():
            return fine("storage", f"{file} will be created")
    with reading(engine) as connection:
        empty = not inspect(connection).get_table_names()
    if empty:
        return fine("storage", f"{shown(url)} answers and is empty")
    connect(url)
    return fine("storage", f"{shown(url)} answers and holds studies")


def check_room(subject: str, folder: Path, *, wished_gib: float, needed_gib: float = 0.0) -> Finding:
    """Say how much is free where `folder` is or will be; too little is a problem, less than wished a warning."""
    there = _nearest(folder)
    free_gib = mib(shutil.disk_usage(there).free) / MIB_PER_GIB
    text = f"{free_gib:,.1f} GiB free at {there}"
    if free_gib < needed_gib:
        return problem(subject, f"{text}; {needed_gib:g} GiB is the least")
    return warning(subject, f"{text}; {wished_gib:g} GiB are safer") if free_gib < wished_gib else fine(subject, text)


def _nearest(folder: Path) -> Path:
    """Give the folder itself or the nearest one above it that exists."""
    return next(path for path in (folder, *folder.absolute().parents) if path.is_dir())
