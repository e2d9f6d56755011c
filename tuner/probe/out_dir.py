"""A folder for the files of one probe."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tuner.errors import OutputError


@contextmanager
def reserved_out_dir(wanted: Path) -> Iterator[Path]:
    """Give a new folder: `wanted`, or `wanted-2`, `wanted-3`, … where that is there; it goes again if it stays empty.

    A database counts its trials once, so what is there was left by another one with a study of the same name. A folder
    is made in one step: of two tuners that want the same, on any machines that share it, each gets its own.
    Raises OutputError when it cannot be made.
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
        wanted.parent.mkdir(parents=True, exist_ok=True)  # apart: a link there that leads nowhere "exists" as well
        while True:
            with suppress(FileExistsError):
                folder.mkdir()
                return folder
            number += 1
            folder = wanted.with_name(f"{wanted.name}-{number}")
    except OSError as error:
        raise OutputError(
            f"{error.filename} cannot be made: {error.strerror}; see what stands in its way and that there is room, "
            "then resume"
        ) from error
