"""Optuna's tables in the study database, as the exports read them, on SQLite and PostgreSQL."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, Engine, NullPool, create_engine, inspect
from sqlalchemy.exc import DBAPIError

from tuner.errors import EmptyStoreError, StoreError
from tuner.kept.tables import ATTRIBUTES, FACTS, STEPS, STUDIES, TRIALS, VALUES
from tuner.urls import checked_url, remedy, shown


def connect(url: str, *, filled_by: str = "tuner optimize") -> Engine:
    """Return an engine for the study database at `url`. No connection stays open between reads.

    `filled_by`: the command that messages recommend if there is nothing to read yet. Raises StoreError if the database
    cannot be reached or has other tables, and EmptyStoreError if it has no tables. No message shows a password.
    """
    engine = engine_at(url)
    file = engine.url.database or ""
    if engine.dialect.name == "sqlite" and not file.startswith("file:") and not Path(file).exists():
        raise StoreError(f"there is no study database {file} yet; `{filled_by}` creates it")
    with reading(engine) as connection:
        _check_tables(connection, filled_by)
    return engine


def engine_at(url: str) -> Engine:
    """Return an engine without connecting. Raises StoreError if the URL cannot be used."""
    return create_engine(checked_url(url), poolclass=NullPool)


def _check_tables(connection: Connection, filled_by: str) -> None:
    """Raise StoreError if a table or column that the exports read is missing."""
    inspector = inspect(connection)
    tables = set(inspector.get_table_names())
    if not tables:
        raise EmptyStoreError(f"{shown(connection.engine.url)} holds no study yet; `{filled_by}` creates one there")
    for wanted in (STUDIES, FACTS, TRIALS, VALUES, STEPS, ATTRIBUTES):
        found = {known["name"] for known in inspector.get_columns(wanted.name)} if wanted.name in tables else set()
        if missing := [part.name for part in wanted.c if part.name not in found]:
            raise StoreError(
                f"{shown(connection.engine.url)} is no study database of Optuna 5: its table {wanted.name} "
                f"lacks {', '.join(missing)}; name the database that `{filled_by}` filled"
            )


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """Open a connection for reading. Raises StoreError if the database does not answer."""
    try:
        with engine.connect() as connection:
            yield connection
    except (DBAPIError, UnicodeError) as error:  # UnicodeError: a host's name that no network knows
        reason = " ".join(str(getattr(error, "orig", error)).split())
        raise StoreError(
            f"the study database {shown(engine.url)} cannot be read: {reason}; {remedy(engine.url)}"
        ) from error
