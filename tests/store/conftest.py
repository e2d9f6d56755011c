import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests_store import Team, opened, teams

from tuner.store.database import Database


@pytest.fixture
def url(tmp_path: Path, empty_file: Path) -> str:
    """Return the URL of an empty study database."""
    return f"sqlite:///{shutil.copy(empty_file, tmp_path / 'study.db')}"


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    with opened(url) as database:
        yield database


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    """Return what starts workers. It ends with the file: other files check that nothing of theirs still runs."""
    with teams(tmp_path_factory.mktemp("workers")) as team:
        yield team
