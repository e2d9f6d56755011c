"""Study databases as the tuner writes them, made with Optuna itself."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import optuna
import pytest
from sqlalchemy import NullPool, create_engine, make_url, text
from tests_filled import FilledDatabase, filled


@pytest.fixture
def database(tmp_path: Path, empty_file: Path) -> Iterator[FilledDatabase]:
    """Return an empty study database in SQLite."""
    file = shutil.copy(empty_file, tmp_path / "study.db")
    with filled(f"sqlite:///{file}") as made:
        yield made


@pytest.fixture(params=["sqlite", "postgresql"])
def any_database(request: pytest.FixtureRequest) -> Iterator[FilledDatabase]:
    """Return an empty study database on each kind of server."""
    if request.param == "sqlite":
        yield request.getfixturevalue("database")
    else:
        with _own_database(*request.getfixturevalue("server_with_schema")) as url, filled(url) as made:
            yield made


@pytest.fixture(scope="session")
def server_with_schema(postgresql_server: str) -> tuple[str, str]:
    """Return a server and a database with only the schema, to be copied: making the schema takes long."""
    engine = create_engine(postgresql_server, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with engine.connect() as connection:
        connection.execute(text("CREATE DATABASE empty_study"))
    storage = optuna.storages.RDBStorage(
        make_url(postgresql_server).set(database="empty_study").render_as_string(hide_password=False)
    )
    storage.remove_session()
    storage.engine.dispose()
    return postgresql_server, "empty_study"


@contextmanager
def _own_database(server: str, template: str) -> Iterator[str]:
    name = f"tuner_test_{uuid4().hex}"
    engine = create_engine(server, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {template}"))
    try:
        yield make_url(server).set(database=name).render_as_string(hide_password=False)
    finally:
        with engine.connect() as connection:
            connection.execute(text(f"DROP DATABASE {name}"))
