"""The folder of one probe's files: made anew, found again, and what to say where a file cannot be written."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tuner.errors import OutputError

_REMEDY = (
    "check what stands in its way, and the free space, or choose another --runs folder; then run the command again"
)


@contextmanager
def reserved_out_dir(wanted: Path) -> Iterator[Path]:
    """Make and yield a new folder; remove it at the end if it is still empty.

    The folder is `wanted`. If it exists, the folder is `wanted-2`, `wanted-3` and so on. A database uses each trial
    number once, so an existing folder belongs to another database. The folder is made in one step, so two tuners never
    get the same folder, even on two machines that share the disk. Raises OutputError when the folder cannot be made.
    """
    folder = _made(wanted)
    try:
        yield folder
    finally:
        with suppress(OSError):
            folder.rmdir()


def _made(wanted: Path) -> Path:
    folder, number = wanted, 1
    try:
        wanted.parent.mkdir(parents=True, exist_ok=True)  # outside the loop: a broken link raises FileExistsError, too
        while True:
            with suppress(FileExistsError):
                folder.mkdir()
                return folder
            number += 1
            folder = wanted.with_name(f"{wanted.name}-{number}")
    except OSError as error:
        raise OutputError(f"{error.filename} cannot be made: {error.strerror}; {_REMEDY}") from error


def folder_of(study: Path, out_dir: str | None) -> Path | None:
    """Return a probe's folder as the database names it; None where it names none, or one outside the study's folder.

    Others may have written the database, so a path that leads out of the study's folder is not followed.
    """
    if not out_dir or "\0" in out_dir:
        return None
    whole = (study / out_dir).resolve()
    return whole if whole.is_relative_to(study.resolve()) else None


def make_private(file: Path) -> None:
    """Make an empty file that only its owner may read, unless the file exists. Raises OSError."""
    os.close(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600))


def unwritable(file: str | Path, error: OSError) -> OutputError:
    """Return the error that says that a file of a probe cannot be written, and what to do."""
    return OutputError(f"{file} cannot be written: {error.strerror}; {_REMEDY}")
