import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import optuna
import pytest
from filelock import FileLock, Timeout
from optuna.distributions import BaseDistribution, FloatDistribution
from sqlalchemy import Engine, create_engine, event
from tests_store import NAME, ask, case_study, ok, opened

from tuner.errors import StoreError
from tuner.records.trial import ProbeRecord
from tuner.store.database import Database, PatientConnection


def refusal(url: str) -> str:
    with pytest.raises(StoreError) as caught:
        Database(url)
    return str(caught.value)


def test_a_missing_sqlite_file_is_created_with_its_folder(tmp_path: Path) -> None:
    with opened(f"sqlite:///{tmp_path / 'runs/demo/study.db'}") as database:
        assert database.storage.get_all_studies() == []
    assert (tmp_path / "runs/demo/study.db").stat().st_mode & 0o777 == 0o600


def test_what_was_written_is_there_when_opened_again(url: str) -> None:
    with opened(url) as database:
        case_study(database)
    with opened(url) as database:
        assert [study.study_name for study in database.storage.get_all_studies()] == [NAME]


def test_a_database_that_exists_is_looked_at_once(database: Database, url: str) -> None:
    """A remote one takes long for each connection. Optuna makes two of the three."""
    made: list[object] = []
    event.listen(Engine, "connect", (count := lambda *_: made.append(_)))
    with opened(url):
        pass
    event.remove(Engine, "connect", count)
    assert len(made) == 3


@pytest.mark.parametrize("tables", [["songs"], ["alembic_version", "studies"]])
def test_a_database_of_another_kind_is_refused_untouched(tmp_path: Path, tables: list[str]) -> None:
    file = tmp_path / "songs.db"
    with closing(sqlite3.connect(file)) as other:
        for table in tables:
            other.execute(f"create table {table} (name text)")
        other.commit()
    message = refusal(f"sqlite:///{file}")
    assert "songs.db" in message
    assert f"its tables are {', '.join(tables)}" in message
    with closing(sqlite3.connect(file)) as other:
        assert [name for (name,) in other.execute("select name from sqlite_master")] == tables
    assert list(tmp_path.iterdir()) == [file]


def test_a_database_of_another_optuna_is_refused(url: str) -> None:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as other:
        other.execute("update alembic_version set version_num = 'v9.9.9.a'")
        other.execute("update version_info set schema_version = 99")
        other.commit()
    assert "has another schema" in refusal(url)


@pytest.mark.parametrize(
    "change",
    [
        """update trial_params set distribution_json = '{"name": "NewDistribution", "attributes": {}}'""",
        "update study_directions set direction = 'SIDEWAYS'",
    ],
)
def test_what_a_newer_version_has_written_is_refused(url: str, change: str) -> None:
    study = optuna.create_study(storage=url)
    space: dict[str, BaseDistribution] = {"lr": FloatDistribution(0.0, 1.0)}
    study.ask(space)
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as other:
        other.execute(change)
        other.commit()
    database = Database(url)
    with pytest.raises(StoreError, match="newer version"):
        database.transact(lambda: optuna.load_study(study_name=study.study_name, storage=database.storage).ask(space))


def test_a_file_that_is_no_database_is_refused_untouched(tmp_path: Path) -> None:
    file = tmp_path / "notes.db"
    file.write_text("these are my notes; " * 80)
    assert "file is not a database" in refusal(f"sqlite:///{file}")
    assert file.read_text().startswith("these are my notes; ")
    assert list(tmp_path.iterdir()) == [file]


def test_a_folder_or_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    message = refusal(f"sqlite:///{tmp_path}")
    assert "unable to open database file" in message
    assert "check that its folder is writable" in message
    assert not Path(f"{tmp_path}.lock").exists()
    (tmp_path / "file").touch()
    assert "file" in refusal(f"sqlite:///{tmp_path / 'file/study.db'}")


def test_a_url_that_makes_no_sense_is_refused() -> None:
    assert "its form is sqlite:///PATH" in refusal("nonsense")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://me:secret@127.0.0.1:1/nothing",
        "postgresql+psycopg://me@127.0.0.1:1/nothing?password=secret",
    ],
)
def test_a_server_out_of_reach_is_refused_without_the_password(url: str) -> None:
    pytest.importorskip("psycopg")
    message = refusal(url)
    assert "127.0.0.1:1/nothing" in message
    assert "refused" in message
    assert "check the URL, the server" in message
    assert "secret" not in message


def test_the_shown_url_hides_the_password(database: Database, url: str) -> None:
    assert database.shown_url == url


def test_errors_while_working_are_store_errors(database: Database, url: str) -> None:
    study = case_study(database)
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("drop table trials")
    engine.dispose()
    with pytest.raises(StoreError, match="no such table: trials"):
        study.ask(1)


def test_the_lock_lies_beside_the_file_and_keeps_others_out(database: Database, url: str) -> None:
    beside = FileLock(f"{url.removeprefix('sqlite:///')}.lock", blocking=False)
    with database.lock(), pytest.raises(Timeout):
        beside.acquire()
    with beside:
        assert beside.is_locked


def test_a_worker_that_does_not_let_go_of_the_lock_is_not_waited_for_for_ever(database: Database, url: str) -> None:
    file = url.removeprefix("sqlite:///")
    with database.lock(), pytest.raises(StoreError, match=rf"held its lock for 0 s; `fuser {file}\.lock` names"):
        Database(url, lock_s=0.01)
    Database(url, lock_s=0.01).close()


@pytest.mark.parametrize(("options", "patience_s"), [("", 120.0), ("?timeout=7", 7.0)])
def test_a_file_that_another_program_holds_is_waited_for(url: str, options: str, patience_s: float) -> None:
    with opened(f"{url}{options}") as database, database.storage.engine.connect() as connection:
        used = connection.connection.dbapi_connection
        assert isinstance(used, PatientConnection)
        assert used.patience_s == patience_s


def test_a_study_that_is_deleted_while_it_runs_is_a_clear_error(database: Database) -> None:
    study = case_study(database)
    asked = ask(study)
    database.storage.delete_study(database.storage.get_study_id_from_name(NAME))
    with pytest.raises(StoreError, match="was deleted while it ran, in the dashboard or by another program"):
        study.tell(asked, ok(50.0), ProbeRecord())


@pytest.mark.usefixtures("journal_in_a_file")
def test_a_file_that_is_deleted_while_it_is_used_is_a_clear_error(tmp_path: Path, empty_file: Path) -> None:
    file = Path(shutil.copy(empty_file, tmp_path / "study.db"))
    with opened(f"sqlite:///{file}") as database:
        study = case_study(database)
        asked = ask(study)
        file.unlink()
        with pytest.raises(StoreError, match=r"its file has been deleted or moved meanwhile; put it back, or run the"):
            study.tell(asked, ok(50.0), ProbeRecord())


def test_a_key_that_is_missing_otherwise_is_no_store_error(database: Database) -> None:
    with pytest.raises(KeyError, match="num_envs"), database.errors_explained():
        raise KeyError("num_envs")
