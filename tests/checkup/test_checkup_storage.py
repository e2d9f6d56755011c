import sqlite3
from pathlib import Path

import pytest

from tuner.errors import StoreError
from tuner.store.database import Database
from tuner.tools.checkup import Severity
from tuner.tools.checkup.checks import check_free_space, check_storage


def test_a_database_that_is_not_there_yet_is_left_so(tmp_path: Path) -> None:
    found = check_storage(f"sqlite:///{tmp_path / 'runs/demo/study.db'}")
    assert (found.level, "will be created" in found.text) == (Severity.OK, True)
    assert list(tmp_path.iterdir()) == []


def test_a_database_that_was_opened_before_answers(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'study.db'}"
    Database(url).close()
    assert "contains studies" in check_storage(url).text


def test_an_empty_database_will_do(tmp_path: Path) -> None:
    (tmp_path / "study.db").touch()
    assert "is empty" in check_storage(f"sqlite:///{tmp_path / 'study.db'}").text


def test_a_folder_that_cannot_be_written_is_a_problem() -> None:
    space = check_free_space("disk", Path("/proc/self/runs"), wished_gib=0)
    for found in (check_storage("sqlite:////proc/self/study.db"), space):
        assert found.level is Severity.PROBLEM
        assert "/proc/self is not writable" in found.text


@pytest.mark.parametrize("locked", ["runs", "runs/study.db", "runs/study.db.lock"])
def test_what_writing_to_a_database_takes_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locked: str
) -> None:
    url = f"sqlite:///{tmp_path / 'runs/study.db'}"
    Database(url).close()
    monkeypatch.setattr("os.access", lambda place, mode: place != tmp_path / locked)
    found = check_storage(url)
    assert (found.level, f"{tmp_path / locked} is not writable" in found.text) == (Severity.PROBLEM, True)


def test_another_database_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("create table songs (name text)")
    other.close()
    with pytest.raises(StoreError, match=r"other\.db is no study database"):
        check_storage(f"sqlite:///{tmp_path / 'other.db'}")


@pytest.mark.parametrize("url", ["nonsense", "sqlite:/x", "postgresql+psycopg://me:secret@127.0.0.1:1/tuner"])
def test_a_database_out_of_reach_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(StoreError) as refusal:
        check_storage(url)
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    ("needed_gib", "wished_gib", "level"),
    [(0, 0, Severity.OK), (0, 1e9, Severity.WARNING), (1e8, 1e9, Severity.PROBLEM)],
)
def test_free_space_is_reported_where_the_folder_will_be(
    tmp_path: Path, needed_gib: float, wished_gib: float, level: Severity
) -> None:
    found = check_free_space("disk", tmp_path / "runs" / "demo", needed_gib=needed_gib, wished_gib=wished_gib)
    assert (found.subject, found.level) == ("disk", level)
    assert f"GiB free at {tmp_path}" in found.text
