import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tuner.errors import StoreError
from tuner.export.reader import connect


def test_an_unreachable_server_is_named_without_its_password() -> None:
    with pytest.raises(StoreError, match="postgresql") as raised:
        connect("postgresql+psycopg://tuner:hunter2@127.0.0.1:1/studies?application_name=hunter2")
    message = str(raised.value)
    assert message.startswith("the study database postgresql+psycopg://tuner:***@127.0.0.1:1/studies cannot be read: ")
    assert "hunter2" not in message
    assert "\n" not in message


def test_a_missing_file_is_not_created(tmp_path: Path) -> None:
    file = tmp_path / "study.db"
    with pytest.raises(StoreError, match=r"no study database .*study\.db yet; `tuner optimize` creates it"):
        connect(f"sqlite:///{file}")
    assert not file.exists()


def test_a_folder_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="unable to open database file; check that its folder is writable"):
        connect(f"sqlite:///{tmp_path}")


def test_a_database_of_another_schema_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "other.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE studies (study_id INTEGER, title TEXT)")
    with pytest.raises(StoreError, match=r"no study database of Optuna 5: its table studies lacks study_name"):
        connect(f"sqlite:///{file}")


def test_an_empty_file_holds_no_study_yet(tmp_path: Path) -> None:
    file = tmp_path / "study.db"
    file.touch()
    with pytest.raises(StoreError, match=r"study\.db holds no study yet; `tuner optimize` creates one there"):
        connect(f"sqlite:///{file}")


def test_a_database_that_another_program_holds_is_named_with_what_to_do(empty_file: Path, tmp_path: Path) -> None:
    file = shutil.copy(empty_file, tmp_path / "study.db")
    with closing(sqlite3.connect(file)) as holder:
        holder.execute("begin exclusive")
        with pytest.raises(StoreError, match=r"database is locked; check that .* no other program locks the file"):
            connect(f"sqlite:///{file}?timeout=0")


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "study.db"
    file.write_text("case\tmethod\n" * 100, encoding="utf-8")
    with pytest.raises(StoreError, match="cannot be read: file is not a database"):
        connect(f"sqlite:///{file}")


def test_a_url_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(StoreError, match="its form is sqlite:///PATH"):
        connect("runs/demo/study.db")
