"""Optuna's storage with its trials read by a few queries. All SQL with which a search reads trials is in this file.

Each case of the tuner is a study of Optuna. A lease in a trial's attributes says which process runs the trial. A
journal is the file of Optuna's JournalStorage, which is only read.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from copy import deepcopy as copied
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import optuna
from optuna.distributions import json_to_distribution
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import Connection, Row, String, bindparam, cast, or_, select

from tuner.errors import StoreError
from tuner.records import schema
from tuner.records.case_record import StudyAttributes
from tuner.records.schema import ATTRIBUTES, STATE, STUDIES, TRIALS, is_case_of, read_json, storable
from tuner.records.trial import RUNNING, is_whole, stored_facts
from tuner.store.leases import Lease
from tuner.study import grouped, open_regular

NO_RECORD = "Record does not exist."
"""The text of Optuna's KeyError for a study or a trial that is gone."""
_TABLES = (schema.PARAMETERS, schema.VALUES, schema.STEPS, ATTRIBUTES, schema.CONSTRAINTS)
_Rows = Callable[..., Sequence[Row[Any]]]
"""Returns all rows of a query, with the values of its parameters."""
_SINGLE = schema.trial_queries(TRIALS.c.trial_id == bindparam("trial"), _TABLES)
"""The queries of a single trial."""
_CHANGED = schema.trial_queries(
    (TRIALS.c.study_id == bindparam("study"))
    & or_(TRIALS.c.trial_id > bindparam("last"), TRIALS.c.trial_id.in_(bindparam("open", expanding=True))),
    _TABLES,
)
"""The queries of a study's trials that may be unknown: those after the last known id, and those that had not ended."""
_DIRECTIONS = (
    select(cast(schema.DIRECTIONS.c.direction, String).label("direction"))
    .where(schema.DIRECTIONS.c.study_id == bindparam("study"))
    .order_by(schema.DIRECTIONS.c.objective)
)
"""The names of a study's directions; the column has an enum type of its own on PostgreSQL."""
_FACTS, _SYSTEM_FACTS = (
    select(facts.c.key, facts.c.value_json).where(facts.c.study_id == bindparam("study"))
    for facts in (schema.FACTS, schema.SYSTEM_FACTS)
)


@cache
def _running_query(study: str) -> Any:
    """Return the query of the running trials of all cases of a study: of their attributes `LEASE` and `CONFIRMS`."""
    return (
        select(TRIALS.c.trial_id, STUDIES.c.study_name, ATTRIBUTES.c.key, ATTRIBUTES.c.value_json)
        .join_from(TRIALS, STUDIES, STUDIES.c.study_id == TRIALS.c.study_id)
        .join(ATTRIBUTES, ATTRIBUTES.c.trial_id == TRIALS.c.trial_id)
        .where(is_case_of(study), STATE == RUNNING)
        .where(ATTRIBUTES.c.key.in_([schema.LEASE, schema.CONFIRMS]))
        .order_by(TRIALS.c.trial_id)
    )


@dataclass(kw_only=True, slots=True)
class _Cache:
    """What has been read of a study, so that only new trials are read next time: ended trials do not change."""

    ended: dict[int, FrozenTrial] = field(default_factory=dict)
    """Trial id → trial."""
    open: list[int] = field(default_factory=list)
    """The ids of the trials that may change."""
    last: int = -1
    """The largest id."""


class RunningProbe(NamedTuple):
    """A probe that a living process runs now."""

    trial: int
    """The id of its trial in the database."""
    case: str
    """The name of the case's study."""
    is_here: bool
    """Whether it runs on this machine."""
    confirms: bool
    """Whether it measures the best of its case again."""


class StoredCase(NamedTuple):
    """A case in the database."""

    study_id: int
    """The id of its study in Optuna's tables."""
    attributes: StudyAttributes


def _by_optuna(method: Callable[..., Any]) -> Any:
    """Return a method that hands its arguments on to the method of this name of Optuna's own storage."""

    def call(self: "TrialStorage", *arguments: Any, **named: Any) -> Any:
        return getattr(self.rdb, method.__name__)(*arguments, **named)

    return call


class _Decoded(dict[str, Any]):
    """Attributes that have just been decoded, and that a deep copy returns as they are.

    Optuna copies attributes before it returns them. That takes long, and needs not be: nobody else holds these.
    """

    def __deepcopy__(self, _: dict[int, Any]) -> "_Decoded":
        return self


def _decoded(rows: Iterable[Row[Any]]) -> _Decoded:
    """Return the attributes in some rows: name → value."""
    return _Decoded((row.key, read_json(row.value_json)) for row in rows)


class TrialStorage(BaseStorage):
    """Optuna's RDBStorage, but stores only what every database can store, and reads trials much faster.

    A trial that another program added, or whose record is damaged, is left out. Among the attributes of a trial, the
    record of its probe is decoded already.
    """

    def __init__(self, rdb: RDBStorage) -> None:
        self.rdb = rdb
        self.engine = rdb.engine
        self._caches: dict[int, _Cache] = defaultdict(_Cache)
        """Study id → what has been read."""

    create_new_study = _by_optuna(RDBStorage.create_new_study)
    delete_study = _by_optuna(RDBStorage.delete_study)
    set_study_system_attr = _by_optuna(RDBStorage.set_study_system_attr)
    get_study_id_from_name = _by_optuna(RDBStorage.get_study_id_from_name)
    get_study_name_from_id = _by_optuna(RDBStorage.get_study_name_from_id)
    get_all_studies = _by_optuna(RDBStorage.get_all_studies)
    set_trial_param = _by_optuna(RDBStorage.set_trial_param)
    set_trial_state_values = _by_optuna(RDBStorage.set_trial_state_values)
    set_trial_intermediate_value = _by_optuna(RDBStorage.set_trial_intermediate_value)
    set_trial_system_attr = _by_optuna(RDBStorage.set_trial_system_attr)
    remove_session = _by_optuna(RDBStorage.remove_session)

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        """Begin a trial, with the attributes of the template made storable, and return its id."""
        if template_trial is not None:
            template_trial.user_attrs = storable(template_trial.user_attrs)
        return self.rdb.create_new_trial(study_id, template_trial)

    def set_study_user_attr(self, study_id: int, key: str, value: Any) -> None:
        """Store an attribute of a study, made storable."""
        self.rdb.set_study_user_attr(study_id, key, storable(value))

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        """Store an attribute of a trial, made storable."""
        self.rdb.set_trial_user_attr(trial_id, key, storable(value))

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        """Return the direction of each objective of a study. Raises KeyError where the study is gone.

        Raises LookupError for a direction that this version does not know.
        """
        rows = self.rows(_DIRECTIONS, study=study_id)
        if not rows:
            raise KeyError(NO_RECORD)
        directions = StudyDirection.__members__
        if unknown := [row.direction for row in rows if row.direction not in directions]:
            raise LookupError(f"{unknown[0]!r} is not among the defined enum values")
        return [directions[row.direction] for row in rows]

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        """Return the attributes of a study; None for an attribute that is damaged."""
        return _decoded(self.rows(_FACTS, study=study_id))

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        """Return Optuna's own attributes of a study; None for an attribute that is damaged."""
        return _decoded(self.rows(_SYSTEM_FACTS, study=study_id))

    def get_trial(self, trial_id: int) -> FrozenTrial:
        """Return a trial, also one of another program. Raises KeyError where there is none, or it is damaged."""
        with self._reading() as rows:
            stored = list(schema.trials_with_rows(partial(rows, trial=trial_id), _SINGLE))
        trial = _frozen_trial(*stored[0], None) if stored else None
        if trial is None:
            raise KeyError(NO_RECORD)
        return trial

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        """Return the tuner's trials of a study in the order of their numbers. Raises KeyError where the study is gone.

        With `deepcopy` the caller may change them. Of trials in other `states` no more than their states is read.
        """
        unread = {state.name for state in TrialState if states is not None and state not in states}
        cache, objectives = self._caches[study_id], len(self.get_study_directions(study_id))
        with self._reading() as rows:
            execute = partial(rows, study=study_id, last=cache.last, open=cache.open)
            changed = list(schema.trials_with_rows(execute, _CHANGED, unread))
        trials = dict(cache.ended)
        cache.open = []
        for row, details in changed:
            cache.last = max(cache.last, row.trial_id)
            if row.state in unread | {TrialState.RUNNING.name, TrialState.WAITING.name}:
                cache.open.append(row.trial_id)  # read again next time
            if row.state in unread or (trial := _frozen_trial(row, details, objectives)) is None:
                continue
            trials[row.trial_id] = trial
            if trial.state.is_finished():
                cache.ended[row.trial_id] = trial
        wanted = [trial for _, trial in sorted(trials.items()) if states is None or trial.state in states]
        return copied(wanted) if deepcopy else wanted

    def drop_cached_trials(self) -> None:
        """Read all trials anew next time: those read so far may be of a transaction that was never committed."""
        self._caches.clear()

    def study_id(self, name: str) -> int | None:
        """Return the id of the study of this name; None where there is none."""
        rows = self.rows(select(STUDIES.c.study_id).where(STUDIES.c.study_name == name))
        return rows[0].study_id if rows else None

    def cases(self) -> dict[str, StoredCase]:
        """Return the cases of all studies by their names STUDY/CASE, in the order in which they were started."""
        fact_rows = grouped(self.rows(select(schema.FACTS)), lambda row: row.study_id)
        studies = self.rows(select(STUDIES.c.study_id, STUDIES.c.study_name).order_by(STUDIES.c.study_id))
        return {
            row.study_name: StoredCase(row.study_id, StudyAttributes(_decoded(fact_rows.get(row.study_id, ()))))
            for row in studies
        }

    def running_probes(self, study: str, lives: Callable[[Lease], bool]) -> list[RunningProbe]:
        """Return the probes of all cases of a study that run now. A trial whose process is gone is left out.

        Args:
            study: The name of the study, which begins the names of its cases.
            lives: Returns whether a process on another host lives, by its lease.
        """
        rows = self.rows(_running_query(study))
        confirming = {row.trial_id for row in rows if row.key == schema.CONFIRMS}
        leases = [(row, Lease.read(read_json(row.value_json))) for row in rows if row.key == schema.LEASE]
        return [
            RunningProbe(row.trial_id, row.study_name, lease.is_here(), row.trial_id in confirming)
            for row, lease in leases
            if lease and lease.is_alive(lives)
        ]

    def rows(self, query: Any, **values: Any) -> Sequence[Row[Any]]:
        """Return all rows of an SQLAlchemy query, in the transaction that is open, if one is."""
        with self._reading() as rows:
            return rows(query, **values)

    @contextmanager
    def _reading(self) -> Iterator[_Rows]:
        """Yield a function that runs queries on one connection, in the transaction that is open, if one is."""
        bind = self.rdb.scoped_session.bind  # `Transactions` binds the sessions to the connection of its transaction
        with nullcontext(bind) if isinstance(bind, Connection) else self.engine.begin() as connection:
            yield lambda query, **values: connection.execute(query, values).all()


def _frozen_trial(row: Row[Any], details: Sequence[Sequence[Row[Any]]], objectives: int | None) -> FrozenTrial | None:
    """Return a stored trial as Optuna's FrozenTrial; None where the trial is damaged, or is of another program.

    Args:
        row: The row of the trial.
        details: Its rows of each of `_TABLES`.
        objectives: The number of values that a complete trial has; None also returns trials of other programs.
    """
    parameters, values, steps, attributes, constraints = details
    try:
        state = TrialState[row.state]
        in_order = sorted(parameters, key=lambda parameter: parameter.param_id)
        distributions = {parameter.param_name: _distribution(parameter.distribution_json) for parameter in in_order}
        numbers = {parameter.param_name: float(parameter.param_value) for parameter in parameters}
        objective_values = [float(value.value) for value in sorted(values, key=lambda value: value.objective)]
        if not isinstance(row.number, int) or not all(map(math.isfinite, objective_values)):
            return None
        facts = stored_facts(attributes)
        count = len(objective_values)
        if objectives is not None and not is_whole(facts, state=row.state, values=count, objectives=objectives):
            return None
        return FrozenTrial(
            number=row.number,
            trial_id=row.trial_id,
            state=state,
            value=None,
            values=objective_values or None,
            datetime_start=None,  # no search needs the times; the tables read them themselves
            datetime_complete=None,
            params={name: kind.to_external_repr(numbers[name]) for name, kind in distributions.items()},
            distributions=distributions,
            user_attrs=facts,
            system_attrs={attribute.key: _constraint(attribute.key, attribute.value_json) for attribute in constraints},
            intermediate_values={  # Optuna stores nothing for NaN
                int(step.step): math.nan if step.intermediate_value is None else float(step.intermediate_value)
                for step in steps
            },
        )
    except (KeyError, ValueError, TypeError, IndexError, OverflowError):
        return None


_distribution = lru_cache(maxsize=10_000)(json_to_distribution)
"""Returns the distribution in a JSON text, made once: these take most of the time and the memory of reading trials."""


def _constraint(key: str, document: str) -> Any:
    """Return one of Optuna's own attributes of a trial. Raises TypeError for a constraint that is no number."""
    value = read_json(document)
    if key.startswith("constraints") and not isinstance(value, int | float):
        raise TypeError("a constraint is a number")
    return value


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
