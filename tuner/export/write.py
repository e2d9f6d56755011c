"""Writes a study's exports into a folder. A reader finds either the whole old file or the whole new file."""

import errno
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryFile

from tuner.errors import OutputError
from tuner.export.reader import StudyReader, connect
from tuner.export.tables import Sheet, all_trials, best_by_case, case_manifest, method_summary, pareto, tsv
from tuner.study import Case


def export_study(url: str, study: str, folder: Path, selected: Sequence[Case] = ()) -> list[Path]:
    """Write all exports of `study` into `folder`, and return their paths.

    Only their owner can read them, because they quote what programs have printed.
    `selected`: the cases that the study wants; the manifest has those that have not begun, too.
    Old files are replaced only when all new files are complete. Raises StoreError if the database or the study cannot
    be read, and OutputError if a file cannot be written.
    """
    reader = StudyReader(connect(url), study)
    tables = TABLES | {"case_manifest.tsv": partial(case_manifest, selected=selected)}
    if any(len(case.objectives) > 1 for case in reader.cases):
        tables["pareto.tsv"] = pareto
    return write_files(folder, {name: tsv(table(reader)).encode() for name, table in tables.items()})


def prepare_folder(folder: Path) -> None:
    """Create `folder` if it is missing, and check that it is writable. Raises OutputError if it is not."""
    with _as_output_error(folder):
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=folder).close()


IGNORE_FILE = ".gitignore"
IGNORE_ALL = "*\n"
"""What the file of this name says in a folder of results: git takes nothing of the folder, not even the file."""


def prepare_results(runs: Path) -> None:
    """Make the folder of all results, which git ignores, unless it exists. Raises OutputError if that fails."""
    with _as_output_error(runs), suppress(FileExistsError):
        runs.mkdir(parents=True)
        write_files(runs, {IGNORE_FILE: IGNORE_ALL.encode()})


def prepare_study(folder: Path) -> None:
    """Prepare the folder of a study in the folder of all results. Raises OutputError if it cannot be written to."""
    prepare_results(folder.parent)
    prepare_folder(folder)


def write_files(folder: Path, files: Mapping[str, bytes]) -> list[Path]:
    """Write files, name → content, into `folder`, which is created if it is missing, and return their paths.

    Only their owner can read them, from their creation on. Old files are replaced only when all new files are complete.
    Raises OutputError if a file cannot be written.
    """
    prepare_folder(folder)
    with ExitStack() as stack:  # after an error, the temporary files are deleted
        temporary_of = {
            folder / name: stack.enter_context(_temporary_beside(folder / name, content))
            for name, content in files.items()
        }
        for path, temporary in temporary_of.items():  # all are complete now
            with _as_output_error(path):
                temporary.replace(path)
    return list(temporary_of)


@contextmanager
def _temporary_beside(path: Path, content: bytes) -> Iterator[Path]:
    """Yield a temporary file beside `path` with the content. If the caller does not move it, it is deleted.

    Raises OutputError where `path` is something else than a file, or cannot be written.
    """
    if path.exists() and not path.is_file():
        raise OutputError(f"cannot write {path}: it is no file; choose another name, then run the command again")
    with _as_output_error(path), ExitStack() as stack:
        with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            stack.callback(Path(file.name).unlink, missing_ok=True)  # missing: the caller has moved it
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # on the disk before it replaces the old file
        yield Path(file.name)


@contextmanager
def _as_output_error(path: Path) -> Iterator[None]:
    """Turn an OSError inside this context into an OutputError that names `path` and says what to do."""
    try:
        yield
    except OSError as error:
        is_full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        remedy = "free some disk space" if is_full else "choose another folder"
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
