import importlib.util
import json
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest

from tuner.errors import StoreError, TunerError
from tuner.export.served import refusal, serve
from tuner.probe.process import reserved_port

if TYPE_CHECKING:
    from conftest import FilledDatabase

SERVE = "import sys; from tuner.export.served import serve; serve(sys.argv[1], int(sys.argv[2]))"


def test_the_dashboard_shows_the_studies_until_interrupted(database: "FilledDatabase") -> None:
    database.case("add_pi_plus")
    with (
        reserved_port() as port,
        subprocess.Popen(
            [sys.executable, "-c", SERVE, database.url, str(port)], stderr=subprocess.PIPE, text=True
        ) as dashboard,
    ):
        try:
            studies = _studies(dashboard, port)
            assert _refused(port, "DELETE", "127.0.0.1")
            assert _refused(port, "GET", "evil.example")
            assert _studies(dashboard, port) == studies
        finally:
            dashboard.send_signal(signal.SIGINT)
            dashboard.communicate()
    assert [study["study_name"] for study in studies] == ["pi_plus/add_pi_plus"]
    assert dashboard.returncode == -signal.SIGINT


def _studies(dashboard: subprocess.Popen[str], port: int) -> list[dict[str, Any]]:
    """Request the list of studies, and repeat the request while the server does not listen yet."""
    while dashboard.poll() is None:
        with suppress(URLError), urlopen(f"http://127.0.0.1:{port}/api/studies") as answer:
            return json.load(answer)["study_summaries"]
        with suppress(subprocess.TimeoutExpired):
            dashboard.wait(0.05)
    raise AssertionError("the dashboard has ended")


def _refused(port: int, method: str, host: str) -> bool:
    asked = Request(f"http://127.0.0.1:{port}/api/studies/1", method=method, headers={"Host": host})
    try:
        urlopen(asked)  # noqa: S310 - the URL is written above
    except HTTPError as error:
        return error.code == HTTPStatus.FORBIDDEN
    return False


def test_only_this_machine_is_answered_and_nothing_is_written() -> None:
    for headers, passes in [
        ({"HTTP_HOST": "127.0.0.1:8080"}, True),
        ({"HTTP_HOST": "localhost"}, True),
        ({"HTTP_HOST": "[::1]:9000"}, True),
        ({"HTTP_HOST": "127.0.0.1.evil.example"}, False),
        ({"HTTP_HOST": "localhost@evil.example"}, False),
        ({"HTTP_HOST": "[::1"}, False),
        ({}, False),
        ({"HTTP_HOST": "localhost", "REQUEST_METHOD": "POST"}, False),
    ]:
        assert (refusal({"REQUEST_METHOD": "GET", **headers}.get) is None) is passes


def test_a_taken_port_is_named(database: "FilledDatabase") -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(TunerError, match=f"port {port}: Address already in use; choose another with --port"):
            serve(database.url, port)


def test_a_port_that_cannot_be_is_named(database: "FilledDatabase") -> None:
    with pytest.raises(TunerError, match="cannot listen on port 70000"):
        serve(database.url, 70000)


def test_a_missing_package_says_how_to_install_it(database: "FilledDatabase", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(TunerError, match=r"`pip install -e '.*\[dashboard\]'`"):
        serve(database.url, 8080)


def test_a_missing_database_is_not_served() -> None:
    with pytest.raises(StoreError, match="no study database"):
        serve("sqlite:///no/such/study.db", 8080)
