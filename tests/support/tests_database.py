"""Study databases that spare tests what takes long: making the schema, and waiting for the disk."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy import Engine, event

from tuner.store.database import Database


@cache
def empty_database() -> bytes:
    """Give a SQLite file with nothing but a study database's schema, which takes long to make and no time to copy."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "study.db"
        Database(f"sqlite:///{file}").close()
        return file.read_bytes()


def no_power_cut(engine: Engine) -> None:
    """Let SQLite write without waiting for the disk: what a killed process has written is there all the same."""
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", lambda connection, _: connection.execute("pragma synchronous = off"))
        engine.dispose()  # further connections are made anew
