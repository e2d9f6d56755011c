"""The fixtures of all tests: light databases and a private server."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import tests_database
from alembic.script import ScriptDirectory
from tests_database import compiling_once, empty_database, migrations, without_power_cuts
from tests_postgresql import private_server


@pytest.fixture(scope="session", autouse=True)
def _databases_are_light() -> Iterator[None]:
    """Save half of the time of a new database, and the wait for the disk."""
    with pytest.MonkeyPatch.context() as patch, without_power_cuts(), compiling_once():
        patch.setattr(ScriptDirectory, "from_config", migrations)
        yield


@pytest.fixture(scope="session")
def empty_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a SQLite file with the schema of a study database and nothing else."""
    file = tmp_path_factory.mktemp("empty") / "study.db"
    file.write_bytes(empty_database())
    return file


@pytest.fixture
def journal_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let SQLite notice that a database has been moved or deleted, as it does for users."""
    monkeypatch.setattr(tests_database, "JOURNAL", "delete")


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    """Return a private server that all tests of this process share."""
    with private_server() as server:
        yield server.url
