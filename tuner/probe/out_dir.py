"""A folder for the files of one probe, and what to say where a file cannot be written."""

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


def unwritable(file: str | Path, error: OSError) -> OutputError:
    """Return the error that says that a file of a probe cannot be written, and what to do."""
    return OutputError(f"{file} cannot be written: {error.strerror}; {_REMEDY}")
