"""Writes a study's exports into a folder. A reader finds either the whole old file or the whole new file."""

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from functools import partial
from glob import escape
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO
from uuid import uuid4

from tuner.errors import OutputError
from tuner.export.reader import StudyReader, connect
from tuner.export.tables import Sheet, all_trials, best_by_case, case_manifest, method_summary, pareto, tsv

PRIVATE, USUAL = 0o600, 0o666
"""The modes of a new file that only its owner reads and writes, and of one whose readers the umask names."""
_REMEDIES = {
    errno.ENOSPC: "free some disk space",
    errno.EDQUOT: "free some of your disk quota",
    errno.EACCES: "make the folder writable",
    errno.EPERM: "make the folder writable",
    errno.EROFS: "choose a folder on a writable file system",
}


def export_study(url: str, study: str, folder: Path) -> list[Path]:
    """Write all exports of `study` into `folder` and return the files' paths. They are their owner's alone: they quote.

    Old files are replaced only when all new files are complete. Raises StoreError if the database or the study cannot
    be read, and OutputError if a file cannot be written.
    """
    reader = StudyReader(connect(url), study)
    several = any(len(case.objectives) > 1 for case in reader.cases)
    tables = TABLES | ({"pareto.tsv": pareto} if several else {})
    return write_files(folder, {name: [tsv(table(reader)).encode()] for name, table in tables.items()}, private=True)


def prepare_folder(folder: Path) -> None:
    """Create `folder` if it is missing, and check that it is writable. Raises OutputError if it is not."""
    with _explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=folder).close()


def write_files(folder: Path, files: Mapping[str, Iterable[bytes]], *, private: bool = False) -> list[Path]:
    """Write files, name → pieces of content, into `folder` and return their paths. A missing folder is created.

    A `private` file is its owner's alone from before its first byte. Old files are replaced only when all new files are
    complete. Raises OutputError if a file cannot be written.
    """
    mode = PRIVATE if private else USUAL
    prepare_folder(folder)
    for name in files:
        _remove_leftovers(folder / name)
    with ExitStack() as stack:
        staged = {
            folder / name: stack.enter_context(_staged(folder / name, pieces, mode)) for name, pieces in files.items()
        }
        for path, temporary in staged.items():
            with _explained(path):
                temporary.replace(path)
    return list(staged)


@contextmanager
def _staged(path: Path, pieces: Iterable[bytes], mode: int) -> Iterator[Path]:
    """Write the pieces to a temporary file beside `path`. If the caller does not move the file, it is deleted."""
    if path.exists() and not path.is_file():
        raise OutputError(f"cannot write {path}: it is no file; choose another name, then run the command again")
    with _explained(path), ExitStack() as stack:  # on a full disk the end of the stack fails, too: it flushes again
        file, temporary = _locked_beside(path, mode)
        stack.callback(temporary.unlink, missing_ok=True)
        stack.enter_context(file)
        file.writelines(pieces)
        file.flush()
        os.fsync(file.fileno())
        yield temporary


def _locked_beside(path: Path, mode: int) -> tuple[BinaryIO, Path]:
    """Make a hidden file beside `path`. Its lock shows other commands that it is being written."""
    while True:
        temporary = path.with_name(f".{path.name}.{uuid4().hex}")
        file = open(temporary, "xb", opener=partial(os.open, mode=mode))  # noqa: SIM115 - the caller closes it
        with suppress(OSError):  # some network file systems have no locks
            flock(file, LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:
            return file, temporary
        file.close()  # another command has removed it before it was locked


def _remove_leftovers(path: Path) -> None:
    """Remove the hidden files that killed commands have left beside `path`: those that nobody has locked."""
    for left in path.parent.glob(f".{escape(path.name)}.{'[0-9a-f]' * 32}"):
        with suppress(OSError), left.open("rb") as file:
            flock(file, LOCK_EX | LOCK_NB)
            left.unlink()


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, "choose another folder")
        raise OutputError(
            f"cannot write {path}: {error.strerror}; {remedy}, then run the command again; earlier files are unchanged"
        ) from error


TABLES: dict[str, Callable[[StudyReader], Sheet]] = {
    "best_by_case.tsv": best_by_case,
    "case_manifest.tsv": case_manifest,
    "method_summary.tsv": method_summary,
    "trials.tsv": all_trials,
}
"""File name → the table in it. A study of several objectives has `pareto.tsv`, too."""
