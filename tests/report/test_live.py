"""The live page of a study: its report, and a version that changes with its trials."""

from pathlib import Path
from typing import Any
from wsgiref.types import WSGIApplication

from tests_filled import FilledDatabase

from tuner.errors import EmptyStoreError
from tuner.export.reader import StudyReader, connect
from tuner.report.facts import gather
from tuner.report.page import live_page, render


def asked(app: WSGIApplication, path: str) -> tuple[str, str]:
    """Return status and text of an answer."""
    seen: list[Any] = []
    text = b"".join(app({"PATH_INFO": path}, lambda status, headers: seen.append(status))).decode()  # pyright: ignore[reportArgumentType]
    return seen[0], text


def test_the_version_changes_with_each_trial_and_the_page_holds_it(database: FilledDatabase, tmp_path: Path) -> None:
    def page(reader: StudyReader, version: str) -> str:
        return render(gather(reader, tmp_path), commands={}, live=version)

    app = live_page(lambda: StudyReader(connect(database.url), "pi_plus"), page)
    case = database.case("add_pi_plus")
    versions = [asked(app, "/version")]
    database.running(case)
    versions.append(asked(app, "/version"))
    database.add(case, {"num_envs": 64}, utils=(50.0,))
    versions.append(asked(app, "/version"))
    database.add(case, {"num_envs": 32}, status="pruned")
    versions.append(asked(app, "/version"))
    assert len({*versions}) == 4
    assert asked(app, "/version") == versions[-1]
    status, text = asked(app, "/")
    assert status == "200 OK"
    assert f'data-live="{versions[-1][1]}"' in text
    assert "connect-src 'self'" in text
    assert asked(app, "/secret")[0] == "404 Not Found"


def test_a_study_that_cannot_be_read_is_told() -> None:
    def read() -> StudyReader:
        raise EmptyStoreError("no study 'walk'")

    app = live_page(read, lambda reader, version: "")
    assert asked(app, "/version") == ("503 Service Unavailable", "no study 'walk'\n")
