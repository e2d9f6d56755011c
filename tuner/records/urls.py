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
REPLAYED = "-replay"
"""The end of the name of the folder that has a replay's results."""


def checked_url(url: str) -> URL:
    """Return the URL of a database, parsed, which an installed driver can open and which outlives this process.

    Raises StoreError for any other URL. The message never shows a password.
    """
    if re.search("[\0\ud800-\udfff]", url):
        raise StoreError(f"the storage URL holds a character that no URL can hold; its form is {_FORM}")
    parsed = _parsed(url)
    try:
        dialect = parsed.get_dialect()
        dialect.import_dbapi()
    except ModuleNotFoundError as error:
        raise StoreError(f"{shown(url)} needs the package {error.name}; install it beside the tuner") from error
    except (NoSuchModuleError, ImportError) as error:
        raise StoreError(f"the storage URL cannot be used: {error}; its form is {_FORM}") from error
    if parsed.get_backend_name() == "sqlite":
        _check_file(parsed)
        _check_options(parsed)
    try:
        dialect().create_connect_args(parsed)
    except (ArgumentError, ValueError, TypeError) as error:
        raise StoreError(f"database {shown(url)}: its options cannot be used: {error}; its form is {_FORM}") from error
    return parsed


def unguarded(url: str) -> str | None:
    """Return why several workers are not safe on a database; None where a lock of the database keeps them apart."""
    backend = _parsed(url).get_backend_name()
    if backend in {"sqlite", "postgresql"}:
        return None
    return f"{backend} has no lock here that keeps workers apart: two could probe the same config, or end each other's"


def check_guarded(url: str) -> None:
    """Raise StoreError where several workers are not safe on a database: see `unguarded`."""
    if why := unguarded(url):
        raise StoreError(f"{shown(url)}: {why}; run `tuner optimize` alone on it, or name a database of {_FORM}")


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


def _check_file(url: URL) -> None:
    """Raise StoreError for a URL of SQLite that names no lasting file."""
    file = url.database or ""
    if url.host or url.username:
        raise StoreError(f"database {shown(url)}: SQLite has no host and no user; its form is sqlite:///PATH")
    if file in {"", ":memory:"}:
        raise StoreError(f"database {shown(url)} would be lost at the end of this process; name a file: sqlite:///PATH")
    if file.startswith("~"):
        raise StoreError(f"database {shown(url)}: nothing expands the ~ in a URL; write the path out")


def _check_options(url: URL) -> None:
    """Raise StoreError for options that SQLite does not know."""
    known = ("timeout", "uri", "mode", "cache", "immutable", "nolock", "vfs")
    if unknown := sorted(url.query.keys() - set(known)):
        raise StoreError(f"database {shown(url)}: SQLite knows no option {unknown[0]!r}; known: {', '.join(known)}")
    try:
        timeout_s = float(str(url.query.get("timeout", 0)))
    except ValueError:
        timeout_s = -1.0  # no number: refused below
    if not 0.0 <= timeout_s < math.inf:
        raise StoreError(f"database {shown(url)}: its timeout is no number of seconds from 0 up; write ?timeout=60")


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
