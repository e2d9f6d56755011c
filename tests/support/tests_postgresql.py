"""A private PostgreSQL server for the tests, on its own socket, which no other server can use."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

NOBODY = "nobody"
"""The user that runs the server if the tests run as root, because PostgreSQL refuses root."""
GUARDED = "guarded"
"""The only role that needs a password. It does not exist before a test creates it."""


@dataclass(kw_only=True)
class Server:
    """A private server that can be stopped and started again."""

    url: str
    pg_ctl: str
    folder: str
    runs: bool = False

    def start(self) -> None:
        if not self.runs:
            settings = f"-c listen_addresses= -c unix_socket_directories={self.folder} -c fsync=off"
            self._control("start", "--log", f"{self.folder}/log", "--options", settings)
            self.runs = True

    def stop(self, mode: str = "fast") -> None:
        if self.runs:
            self._control("stop", "--mode", mode)
            self.runs = False

    def _control(self, *words: str) -> None:
        _run(self.pg_ctl, "--wait", "--pgdata", f"{self.folder}/data", *words)


@contextmanager
def private_server() -> Iterator[Server]:
    """Start a server, yield it, and stop it. Skip the test if there is no PostgreSQL."""
    pytest.importorskip("psycopg")
    initdb, pg_ctl = _binary("initdb"), _binary("pg_ctl")
    with tempfile.TemporaryDirectory(prefix="tuner-pg-") as folder:  # other users may not enter tmp_path
        if os.geteuid() == 0:
            shutil.chown(folder, NOBODY)
        server = Server(url=f"postgresql+psycopg://tuner@/postgres?host={folder}", pg_ctl=pg_ctl, folder=folder)
        user = ("--username", "tuner", "--auth", "trust")
        try:
            _run(initdb, "--pgdata", f"{folder}/data", *user, "--encoding", "UTF8", "--no-sync")
            rules = Path(folder, "data/pg_hba.conf")
            rules.write_text(f"local all {GUARDED} scram-sha-256\n{rules.read_text()}")
            server.start()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no private PostgreSQL server: {error.stderr}")
        try:
            yield server
        finally:
            server.stop("immediate")


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
