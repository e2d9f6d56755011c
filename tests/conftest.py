import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from tests_database import empty_database
from tests_postgresql import private_server

settings.register_profile("no clock", deadline=None)  # how long an example takes depends on who else is at work
settings.load_profile("no clock")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take long."""
    items.sort(key=lambda item: item.get_closest_marker("early") is None)


def pytest_collection_finish() -> None:
    """Keep all modules and tests, which stay to the end, from the garbage collector.

    It took a tenth of the time to search them again and again.
    """
    gc.freeze()


@pytest.fixture(scope="session")
def empty_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with nothing but a study database's schema."""
    file = tmp_path_factory.mktemp("empty") / "study.db"
    file.write_bytes(empty_database())
    return file


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    """A private server for all tests of this process."""
    with private_server() as url:
        yield url
