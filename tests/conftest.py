from pathlib import Path

import pytest
from hypothesis import settings
from tests_database import empty_database

settings.register_profile("no clock", deadline=None)  # how long an example takes depends on who else is at work
settings.load_profile("no clock")


@pytest.fixture(scope="session")
def empty_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with nothing but a study database's schema."""
    file = tmp_path_factory.mktemp("empty") / "study.db"
    file.write_bytes(empty_database())
    return file
