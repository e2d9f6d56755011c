"""The study database as it is read here: Optuna's tables, on SQLite and PostgreSQL, and errors in plain words."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import (
    JSON,
    Connection,
    DateTime,
    Engine,
    NullPool,
    String,
    and_,
    cast,
    column,
    create_engine,
    inspect,
    table,
    type_coerce,
)
from sqlalchemy.exc import DBAPIError

from tuner.errors import EmptyStoreError, StoreError
from tuner.kept.columns import ProbeColumns
from tuner.kept.names import PROBE, RETRY
from tuner.urls import checked_url, remedy, shown

STUDIES = table("studies", column("study_id"), column("study_name", String))
FACTS = table("study_user_attributes", column("study_id"), column("key"), column("value_json"))
TRIALS = table(
    "trials",
    column("trial_id"),
    column("number"),
    column("study_id"),
    column("state", String),
    column("datetime_start", DateTime),
    column("datetime_complete", DateTime),
)
VALUES = table("trial_values", column("trial_id"), column("objective"), column("value"))
STEPS = table("trial_intermediate_values", column("trial_id"), column("step"), column("intermediate_value"))
PROBES = table("trial_user_attributes", column("trial_id"), column("key"), column("value_json"))
PROBE_OF_TRIAL = and_(PROBES.c.trial_id == TRIALS.c.trial_id, PROBES.c.key == PROBE)
RETRIES = PROBES.alias("retries")
RETRY_OF_TRIAL = and_(RETRIES.c.trial_id == TRIALS.c.trial_id, RETRIES.c.key == RETRY)
STATE = cast(TRIALS.c.state, String)
"""Of a trial; the column has an enum type of its own on PostgreSQL."""


def connect(url: str, *, filled_by: str = "tuner optimize") -> Engine:
    """Give an engine on the study database at `url`; no connection stays open between reads.

    `filled_by` is the command that messages name where there is nothing to read yet.
    Raises StoreError when it cannot be reached or holds other tables, EmptyStoreError when it holds none; no message
    shows a password.
    """
    engine = engine_at(url)
    file = engine.url.database or ""
    if engine.dialect.name == "sqlite" and not file.startswith("file:") and not Path(file).exists():
        raise StoreError(f"there is no study database {file} yet; `{filled_by}` creates it")
    with reading(engine) as connection:
        _check_tables(connection, filled_by)
    return engine


def probe_columns(engine: Engine) -> ProbeColumns:
    """Return the fields of a trial's probe record as columns."""
    as_json = cast if engine.dialect.name == "postgresql" else type_coerce  # elsewhere text reads as JSON
    return ProbeColumns(as_json(PROBES.c.value_json, JSON))


def engine_at(url: str) -> Engine:
    """Give an engine without connecting. Raises StoreError for a URL that cannot be used."""
    return create_engine(checked_url(url), poolclass=NullPool)


def _check_tables(connection: Connection, filled_by: str) -> None:
    """Raise StoreError unless every table and column that is read here exists."""
    inspector = inspect(connection)
    tables = set(inspector.get_table_names())
    if not tables:
        raise EmptyStoreError(f"{shown(connection.engine.url)} holds no study yet; `{filled_by}` makes one there")
    for wanted in (STUDIES, FACTS, TRIALS, VALUES, STEPS, PROBES):
        found = {known["name"] for known in inspector.get_columns(wanted.name)} if wanted.name in tables else set()
        if missing := [part.name for part in wanted.c if part.name not in found]:
            raise StoreError(
                f"{shown(connection.engine.url)} is no study database of Optuna 5: its table {wanted.name} "
                f"lacks {', '.join(missing)}; name the database that `{filled_by}` filled"
            )


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """Give a connection to read with. Raises StoreError when the database does not answer."""
    try:
        with engine.connect() as connection:
            yield connection
    except DBAPIError as error:
        reason = " ".join(str(error.orig).split())
        raise StoreError(
            f"the study database {shown(engine.url)} cannot be read: {reason}; {remedy(engine.url)}"
        ) from error
