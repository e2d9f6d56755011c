"""A private PostgreSQL server for the tests, on a socket of its own that no other server can have taken."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NOBODY = "nobody"
"""Runs the server where the tests run as root, whom PostgreSQL refuses."""


@contextmanager
def private_server() -> Iterator[str]:
    """Start a server, give the URL of its database, and stop it; skip the test where that is not possible."""
    pytest.importorskip("psycopg")
    initdb, pg_ctl = _binary("initdb"), _binary("pg_ctl")
    with tempfile.TemporaryDirectory(prefix="tuner-pg-") as folder:  # tmp_path is closed to other users
        if os.geteuid() == 0:
            shutil.chown(folder, NOBODY)
        data, settings = f"{folder}/data", f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off"
        try:
            _run(initdb, "--pgdata", data, "--username", "tuner", "--auth", "trust", "--encoding", "UTF8", "--no-sync")
            _run(pg_ctl, "start", "--wait", "--pgdata", data, "--log", f"{folder}/log", "--options", settings)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no private PostgreSQL server: {error.stderr}")
        try:
            yield f"postgresql+psycopg://tuner@/postgres?host={folder}"
        finally:
            _run(pg_ctl, "stop", "--wait", "--pgdata", data, "--mode", "immediate")


def _binary(name: str) -> str:
    debian = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    found = shutil.which(name) or next((str(path) for path in reversed(debian)), None)
    return found or pytest.skip(f"PostgreSQL's {name} is not installed")


def _run(*command: str) -> None:
    user: dict[str, Any] = {}
    if os.geteuid() == 0:
        user = {"user": NOBODY, "group": pwd.getpwnam(NOBODY).pw_gid, "extra_groups": []}
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    subprocess.run(command, check=True, cwd="/", text=True, **quiet, **user)
