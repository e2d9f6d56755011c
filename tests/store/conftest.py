import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests_store import opened

from tuner.store.database import Database


@pytest.fixture
def url(tmp_path: Path, empty_file: Path) -> str:
    """Return the URL of an empty study database."""
    return f"sqlite:///{shutil.copy(empty_file, tmp_path / 'study.db')}"


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    with opened(url) as database:
        yield database
