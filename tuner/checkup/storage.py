"""Checks where a study keeps its data: its database, and the free space for its files."""

import os
import shutil
from pathlib import Path

from sqlalchemy import inspect

from tuner.checkup.finding import Finding, fine, problem, warning
from tuner.export.database import connect, engine_at, reading
from tuner.units import MIB_PER_GIB, mib
from tuner.urls import shown as shown_url


def check_storage(url: str) -> Finding:
    """Report whether the database answers and contains studies, or can be created. The check changes nothing.

    Raises StoreError when the database cannot be reached or contains something else.
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
        return fine("storage", f"{shown_url(url)} answers and is empty")
    connect(url)
    return fine("storage", f"{shown_url(url)} answers and contains studies")


def check_room(subject: str, folder: Path, *, wished_gib: float, needed_gib: float = 0.0) -> Finding:
    """Report the free space where `folder` is or will be.

    Less than `needed_gib` is a problem, and less than `wished_gib` is a warning.
    """
    there = _nearest(folder)
    free_gib = mib(shutil.disk_usage(there).free) / MIB_PER_GIB
    text = f"{free_gib:,.1f} GiB free at {there}"
    if free_gib < needed_gib:
        return problem(subject, f"{text}; at least {needed_gib:g} GiB is needed")
    if free_gib < wished_gib:
        return warning(subject, f"{text}; {wished_gib:g} GiB would be safer")
    return fine(subject, text)


def _nearest(folder: Path) -> Path:
    """Return the folder itself, or the nearest folder above it that exists."""
    return next(path for path in (folder, *folder.absolute().parents) if path.is_dir())
