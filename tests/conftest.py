import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import tests_database
from alembic.script import ScriptDirectory
from hypothesis import settings
from tests_database import compiling_once, empty_database, migrations, without_power_cuts
from tests_postgresql import private_server

# The time of an example depends on the other load of the machine. Each run draws 25 other examples; 100 are usual.
settings.register_profile("no clock", deadline=None, max_examples=25)
settings.load_profile("no clock")

# Where it is set, as in many images, each process of a run compiles anew all that it imports: a third of the time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def pytest_sessionstart(session: pytest.Session) -> None:
    """Let each process of a whole run read the files of tests from another place on.

    In a fresh clone each process then compiles other files, and finds the rest compiled by the others.
    """
    gc.set_threshold(20_000, 20, 20)  # most objects of tests live until the end, so that searches find little
    config, name = session.config, os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    if config.args == config.getini("testpaths"):
        here = Path(__file__).parent
        parts = sorted(str(path) for path in here.iterdir() if path.is_dir() or path.match("test_*.py"))
        begin = len(parts) * int(name.removeprefix("gw")) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
        config.args = parts[begin:] + parts[:begin]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the files with long tests first, and all others in the order of their names."""
    items.sort(key=lambda item: (item.get_closest_marker("early") is None, item.path))


def pytest_collection_finish() -> None:
    """Keep modules and tests out of the garbage collector's searches, because they live until the end.

    The searches took a tenth of the time.
    """
    gc.freeze()


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
