"""Reads one study from the study database with SQL, once, on SQLite and PostgreSQL; and its exported tables.

Commands that only look at a study read it here, without Optuna. A search reads and writes through `store`.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Connection, Engine, NullPool, Row, create_engine, inspect, select
from sqlalchemy.exc import DBAPIError

from tuner.errors import EmptyStoreError, StoreError
from tuner.export.case_view import CaseView
from tuner.export.summary import CaseSummary, summary
from tuner.records import schema
from tuner.records.case_record import CaseRecord, StudyAttributes
from tuner.records.schema import STEPS, STUDIES, TRIALS, Rows, is_case_of, read_json
from tuner.records.trial import FAIL, RUNNING, TrialRecord, is_whole, read, stored_facts
from tuner.records.urls import DATABASE, checked_url, remedy, session_options, shown

if TYPE_CHECKING:
    import pandas as pd


def read_tables(folder: Path | str) -> "dict[str, pd.DataFrame]":
    """Return the tables in a run's folder: name without `.tsv` → table. Raises StoreError if the folder has none."""
    import pandas as pd  # noqa: PLC0415 - takes half a second, which most commands do not need

    tables = {path.stem: pd.read_csv(path, sep="\t") for path in sorted(Path(folder).glob("*.tsv"))}
    if not tables:
        raise StoreError(f"{folder} holds no tables; `tuner export` writes them into a study's folder under runs/")
    return tables


def connect(url: str, *, filled_by: str = "tuner optimize") -> Engine:
    """Return an engine for the study database at `url`. No connection stays open between reads.

    `filled_by`: the command that messages recommend if there is nothing to read yet. Raises StoreError if the database
    cannot be reached or has other tables, and EmptyStoreError if it has no tables. No message shows a password.
    """
    engine = engine_at(url)
    file = Path(engine.url.database or "")
    is_plain_file = engine.dialect.name == "sqlite" and not str(file).startswith("file:")  # `file:` begins a URI
    if is_plain_file and not file.exists():  # SQLite itself would create an empty one
        in_runs = file.name == DATABASE  # then the folders beside its own are those of other studies
        studies = sorted(path.parent.name for path in file.parent.parent.glob(f"*/{DATABASE}")) if in_runs else []
        instead = f"; name one that is there: --study {' or '.join(studies)}" if studies else ""
        raise StoreError(f"there is no study database {file} yet; `{filled_by}` creates it{instead}")
    with reading(engine) as connection:
        _check_tables(connection, filled_by)
    return engine


def engine_at(url: str) -> Engine:
    """Return an engine without connecting. Raises StoreError if the URL cannot be used."""
    checked = checked_url(url)
    return create_engine(checked, poolclass=NullPool, **session_options(checked))


def _check_tables(connection: Connection, filled_by: str) -> None:
    """Raise StoreError if a table or column that the exports read is missing."""
    inspector = inspect(connection)
    tables = set(inspector.get_table_names())
    if not tables:
        raise EmptyStoreError(f"{shown(connection.engine.url)} holds no study yet; `{filled_by}` creates one there")
    for wanted in (STUDIES, schema.FACTS, TRIALS, schema.VALUES, STEPS, schema.ATTRIBUTES):
        columns = inspector.get_columns(wanted.name) if wanted.name in tables else []
        present = {column["name"] for column in columns}
        if missing := [column.name for column in wanted.c if column.name not in present]:
            raise StoreError(
                f"{shown(connection.engine.url)} is no study database of Optuna 5: its table {wanted.name} "
                f"lacks {', '.join(missing)}; name the database that `{filled_by}` filled"
            )


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """Yield a connection for reading. Raises StoreError if the database does not answer."""
    try:
        with engine.connect() as connection:
            yield connection
    except (DBAPIError, UnicodeError) as error:  # UnicodeError: a host's name that no network knows
        reason = " ".join(str(getattr(error, "orig", error)).split())  # `orig`: the driver's error, without the SQL
        raise StoreError(
            f"the study database {shown(engine.url)} cannot be read: {reason}; {remedy(engine.url)}"
        ) from error


def has_study(url: str, study: str) -> bool:
    """Return whether a database can be read and holds a study."""
    try:
        with reading(connect(url)) as connection:
            return connection.execute(select(STUDIES.c.study_id).where(is_case_of(study))).first() is not None
    except StoreError:
        return False


class Fields(NamedTuple):
    """The names of all parameters, and of all metrics, of a study."""

    parameters: tuple[str, ...]
    metrics: tuple[str, ...]


class StudyReader:
    """One study of a database. Each property is read once, when it is first used."""

    def __init__(self, engine: Engine, study: str, *, is_held: Callable[[object], bool] = lambda _: True) -> None:
        """`is_held` returns whether the process of a running trial lives, by the lease; else it was interrupted."""
        self.engine = engine
        self.study = study
        self._is_held = is_held

    @cached_property
    def cases(self) -> list[CaseView]:
        """The cases that have begun, in the order of their start. Raises EmptyStoreError if there is no such study.

        In the database, each case is a study of Optuna, and what is known of the case are attributes of that study.
        """
        with reading(self.engine) as connection:
            of_cases = select(STUDIES.c.study_id, STUDIES.c.study_name).where(is_case_of(self.study))
            begun = connection.execute(of_cases.order_by(STUDIES.c.study_id)).all()
            if not begun:
                names = connection.scalars(select(STUDIES.c.study_name))
                known = ", ".join(sorted({name.split("/", 1)[0] for name in names})) or "none"
                raise EmptyStoreError(f"{shown(self.engine.url)} has no study {self.study!r}; its studies are {known}")
            ids = [row.study_id for row in begun]
            facts = connection.execute(select(*schema.FACTS.c).where(schema.FACTS.c.study_id.in_(ids))).all()
            queries = schema.trial_queries(TRIALS.c.study_id.in_(ids), (schema.VALUES, schema.ATTRIBUTES))
            stored_trials = list(schema.trials_with_rows(lambda query: connection.execute(query).all(), queries))
        cases: list[CaseView] = []
        for study_id, study_name in begun:
            facts_of_case = {fact.key: read_json(fact.value_json) for fact in facts if fact.study_id == study_id}
            attributes = StudyAttributes(facts_of_case)
            name = study_name.removeprefix(f"{self.study}/")
            record = attributes.case or CaseRecord()
            stored = [self._trial(name, record, row, *rows) for row, rows in stored_trials if row.study_id == study_id]
            trials = [trial for trial in stored if trial]
            view = CaseView(study_id=study_id, name=name, record=record, attributes=attributes, trials=trials)
            cases.append(replace(view, left_out=len(stored) - len(trials)))  # damaged, or of another program
        return cases

    def case(self, name: str) -> CaseView | None:
        """Return the case of this name; None where it has not begun."""
        return next((case for case in self.cases if case.name == name), None)

    @cached_property
    def rows(self) -> list[CaseSummary]:
        """The state of each case, as scripts read it."""
        return [summary(case) for case in self.cases]

    def trials(self) -> Iterator[TrialRecord]:
        """Return all trials, case by case, in the order of their numbers."""
        return chain.from_iterable(case.trials for case in self.cases)

    @cached_property
    def series(self) -> dict[tuple[str, int], list[float | None]]:
        """Case and trial number → the objective after each whole iteration of the window, None where unknown.

        A step that jumps by more than 10,000 is left out: no iterations have so many steps between them.
        """
        names = {case.study_id: case.name for case in self.cases}
        query = (
            select(TRIALS.c.study_id, TRIALS.c.number, STEPS.c.step, STEPS.c.intermediate_value)
            .join_from(TRIALS, STEPS, STEPS.c.trial_id == TRIALS.c.trial_id)
            .where(TRIALS.c.study_id.in_(list(names)))
            .order_by(TRIALS.c.study_id, TRIALS.c.number, STEPS.c.step)
        )
        series: dict[tuple[str, int], list[float | None]] = {}
        with reading(self.engine) as connection:
            for study_id, number, step, value in connection.execute(query):
                values = series.setdefault((names[study_id], number), [])  # the value of step 1 is the first
                is_iteration = isinstance(step, int) and step - len(values) <= 10_000
                if is_iteration and isinstance(value, float | int | None):  # else damaged, or of another program
                    values += [None] * (step - 1 - len(values))  # the steps between that have no value
                    values.append(value)
        return series

    @property
    def fields(self) -> Fields:
        """The names that occur in the study, in the order of appearance."""
        parameters, metrics = dict[str, None](), dict[str, None]()
        for trial in self.trials():
            parameters |= dict.fromkeys(trial.config)
            metrics |= dict.fromkeys(trial.probe.metrics)
        return Fields(tuple(parameters), tuple(metrics))

    def _trial(
        self, case: str, record: CaseRecord, row: Row[Any], values: Rows, attributes: Rows
    ) -> TrialRecord | None:
        """Return a trial; None for a trial of another program, or one whose record is damaged.

        Args:
            case: The name of its case.
            record: What is stored of the case.
            row: The trial's row in the table of trials.
            values: Its values of the objectives.
            attributes: Its further facts.
        """
        facts = stored_facts(attributes)
        state = row.state
        if state == RUNNING and not self._is_held(facts.get(schema.LEASE)):  # its process has died
            state = FAIL
        in_order = [row.value for row in sorted(values, key=lambda row: row.objective)]
        finite = tuple(value for value in in_order if isinstance(value, int | float) and abs(value) < math.inf)
        objectives = (record.objective or "value").split(",")
        has_number = isinstance(row.number, int)  # a damaged row has none
        if not has_number or not is_whole(facts, state=state, values=len(finite), objectives=len(objectives)):
            return None
        return read(
            facts,
            state=state,
            number=row.number,
            case=case,
            values=finite,
            started=schema.moment(row.datetime_start),
            completed=schema.moment(row.datetime_complete),
        )
