"""Reads studies from a journal of Optuna, the file of its JournalStorage. The file is only read."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial

from tuner.errors import StoreError
from tuner.records.schema import read_json
from tuner.study import open_regular


class JournalStudy(NamedTuple):
    """A study of a journal."""

    trials: Sequence[FrozenTrial]
    processes: Sequence[str]
    """The process that began each trial: each line names its own, and the thread."""


def studies_of(path: Path) -> list[str]:
    """Return the names of the studies in a journal. Raises StoreError."""
    with _errors_explained(path):
        return sorted(study.study_name for study in _storage_of(path).get_all_studies())


def read_journal(path: Path, study: str) -> JournalStudy | None:
    """Return a study of a journal; None where it has none of this name. Raises StoreError."""
    with _errors_explained(path):
        storage = _storage_of(path)
        ids = {summary.study_name: summary._study_id for summary in storage.get_all_studies()}
        if study not in ids:
            return None
        trials = storage.get_all_trials(ids[study], deepcopy=False)
        return JournalStudy(trials=trials, processes=_processes(path, ids[study]))


@contextmanager
def _errors_explained(path: Path) -> Iterator[None]:
    """Turn the errors of a journal that is unreadable or damaged into StoreError, which says what is wrong."""
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        raise StoreError(f"the journal {path} cannot be read: {error.strerror}") from error
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"  # Optuna checks no line, so a damaged line may cause any error
        raise StoreError(f"{path} is damaged, or no journal of this version of Optuna: {reason}") from error


def _storage_of(path: Path) -> JournalStorage:
    """Return Optuna's storage of a journal. Raises StoreError for a file that is no journal."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with open_regular(path) as file:
        begin = file.read(16)
    if begin == b"SQLite format 3\0":
        raise StoreError(f"{path} is a database of SQLite; its URL is sqlite:///{path}")
    if begin and begin[:1] != b"{":
        raise StoreError(f"{path} is no journal of Optuna: it does not begin with a JSON object")
    return JournalStorage(JournalFileBackend(str(path)))


def _processes(path: Path, study_id: int) -> list[str]:
    """Return the process that began each trial of the study, in the order of the trials.

    A `worker_id` is the process and its thread, joined by a hyphen.
    """
    create_trial = 4  # `JournalOperation.CREATE_TRIAL`
    processes: list[str] = []
    with open_regular(path) as file:
        for line in file:  # each is an operation, such as the begin of a trial
            operation = read_json(line)  # None for a line that is being written
            begins_trial = isinstance(operation, dict) and operation.get("op_code") == create_trial
            if begins_trial and operation.get("study_id") == study_id:
                processes.append(str(operation.get("worker_id")).rpartition("-")[0])
    return processes
