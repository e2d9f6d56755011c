"""Checks the URL of a study database before anything is opened, and shows it without its password."""

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from tuner.errors import StoreError

_FORM = "sqlite:///PATH or postgresql+psycopg://USER@HOST/NAME"


def checked_url(url: str) -> URL:
    """Parse the URL of a database that an installed driver can open and that outlives this process.

    Raises StoreError for any other URL. The message never shows a password.
    """
    try:
        parsed = make_url(url)
        parsed.get_dialect().import_dbapi()
    except ModuleNotFoundError as error:
        raise StoreError(f"{shown(url)} needs the package {error.name}; install it beside the tuner") from error
    except (ArgumentError, ValueError, ImportError) as error:
        reason = str(error) if isinstance(error, NoSuchModuleError | ImportError) else "it is no database URL"
        raise StoreError(f"the storage URL cannot be used: {reason}; its form is {_FORM}") from error
    if parsed.get_backend_name() == "sqlite":
        _check_file(parsed)
    return parsed


def shown(url: str | URL) -> str:
    """Return a database URL as text, without its password and its options."""
    return make_url(url).set(query={}).render_as_string(hide_password=True)


def remedy(url: URL) -> str:
    """Return what the user should check when a database operation fails."""
    if url.get_backend_name() == "sqlite":
        return "check that its folder is writable and has free space, and that no other program locks the file"
    return "check the URL, the server and free space"


def _check_file(url: URL) -> None:
    if url.database in {None, "", ":memory:"}:
        raise StoreError(f"database {shown(url)} would be lost at the end of this process; name a file: sqlite:///PATH")
    if url.database and url.database.startswith("~"):
        raise StoreError(f"database {shown(url)}: nothing expands the ~ in a URL; write the path out")
