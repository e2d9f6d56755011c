"""Checks the URL of a study database before anything is opened, and shows it without its password."""

import math
import re
from pathlib import Path
from typing import Any

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from tuner.errors import StoreError

_FORM = "sqlite:///PATH or postgresql+psycopg://USER@HOST/NAME"

DATABASE = "study.db"
"""The file name of a study's default database."""
STUDY_FILE = "study.yaml"
"""The study file in a folder of results: a copy as of the last run, or the only file of a study of `--set`."""
REPLAYED = "-replay"
"""The end of the name of the folder that has a replay's results."""


def checked_url(url: str) -> URL:
    """Return the URL of a database, parsed, which an installed driver can open and which outlives this process.

    It is one of SQLite or PostgreSQL, which have a lock that keeps workers apart.

    Raises StoreError for any other URL. The message never shows a password.
    """
    if re.search("[\0\ud800-\udfff]", url):
        raise StoreError(f"the storage URL holds a character that no URL can hold; its form is {_FORM}")
    parsed = _parsed(url)
    if (backend := parsed.get_backend_name()) not in {"sqlite", "postgresql"}:
        raise StoreError(f"{shown(url)}: the tuner does not work on {backend}; its form is {_FORM}")
    try:
        dialect = parsed.get_dialect()
        dialect.import_dbapi()
    except ModuleNotFoundError as error:
        raise StoreError(f"{shown(url)} needs the package {error.name}; install it beside the tuner") from error
    except (NoSuchModuleError, ImportError) as error:
        raise StoreError(f"the storage URL cannot be used: {error}; its form is {_FORM}") from error
    if backend == "sqlite":
        _check_sqlite(parsed)
    try:
        _, given = dialect().create_connect_args(parsed)
        if backend == "sqlite" and not 0 <= given.get("timeout", 0) < math.inf:
            raise ValueError(f"timeout {given['timeout']} is no time in seconds")
    except (ArgumentError, ValueError, TypeError) as error:
        raise StoreError(f"database {shown(url)}: its options cannot be used: {error}; its form is {_FORM}") from error
    return parsed


def session_options(url: URL) -> dict[str, Any]:
    """Return the options of an SQLAlchemy engine that replace a PostgreSQL server's own defaults for its connections.

    Empty for other databases.
    """
    if url.get_backend_name() != "postgresql":
        return {}
    is_libpq = url.get_driver_name().startswith("psycopg")  # other drivers do not know the option
    arguments = {"client_encoding": "utf8"} if is_libpq else {}
    return {"isolation_level": "READ COMMITTED", "connect_args": arguments}


def shown(url: str | URL) -> str:
    """Return a database URL as text, without its password and its options. Raises StoreError for any other text."""
    return _parsed(url).set(query={}).render_as_string(hide_password=True)


def remedy(url: URL) -> str:
    """Return what the user should check when a database operation fails."""
    if url.get_backend_name() == "sqlite":
        return "check that its folder is writable and has free space, and that no other program locks the file"
    return "check the URL, the server and free space"


def _parsed(url: str | URL) -> URL:
    """Return a URL, parsed. Raises StoreError for a text that is no URL."""
    try:
        return make_url(url)
    except (ArgumentError, ValueError) as error:
        raise StoreError(f"the storage URL cannot be used: it is no database URL; its form is {_FORM}") from error


def _check_sqlite(url: URL) -> None:
    """Raise StoreError for a URL of SQLite that names no lasting file, or an option that SQLite does not know."""
    file = url.database or ""
    if url.host or url.username:
        raise StoreError(f"database {shown(url)}: SQLite has no host and no user; its form is sqlite:///PATH")
    if file in {"", ":memory:"}:
        raise StoreError(f"database {shown(url)} would be lost at the end of this process; name a file: sqlite:///PATH")
    if file.startswith("~"):
        raise StoreError(f"database {shown(url)}: nothing expands the ~ in a URL; write the path out")
    known = ("timeout", "uri", "mode", "cache", "immutable", "nolock", "vfs")
    if unknown := sorted(url.query.keys() - set(known)):
        raise StoreError(f"database {shown(url)}: SQLite knows no option {unknown[0]!r}; known: {', '.join(known)}")


def database_url(storage: str | None, folder: Path, file: str = DATABASE) -> str:
    """Return `storage`, or else the URL of a SQLite file in `folder`.

    Raises StoreError when a URL cannot contain the folder's name.
    """
    try:
        return storage or URL.create("sqlite", database=str(folder / file)).render_as_string()
    except UnicodeEncodeError as error:
        raise StoreError(
            f"{str(folder)!r} is not UTF-8, which a database's URL needs; name another folder for the runs"
        ) from error
