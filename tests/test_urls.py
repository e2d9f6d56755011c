"""Which URLs name a database that can be used."""

import pytest

from tuner.errors import StoreError
from tuner.records.urls import checked_url, shown


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "it is no database URL; its form is sqlite:///PATH"),
        ("runs/hunter2/study.db", "it is no database URL"),
        ("postgresql://tuner:hunter2@host:port/studies", "it is no database URL"),
        ("nosuch://tuner:hunter2@host/studies", "the tuner does not work on nosuch"),
        ("postgresql+nothing://tuner:hunter2@host/studies", "dialects:postgresql.nothing"),
        ("mysql+pymysql://tuner:hunter2@host/studies", r"@host/studies: the tuner does not work on mysql"),
        ("sqlite+pysqlcipher://:hunter2@/studies", "needs the package"),
        ("sqlite://", "sqlite:// would be lost at the end of this process; name a file"),
        ("sqlite:///:memory:", "would be lost"),
        ("sqlite://tuner:hunter2@host/study.db", "SQLite has no host and no user"),
        ("sqlite:///study.db?timeout=abc", "its options cannot be used: .*'abc'"),
        *((f"sqlite:///study.db?timeout={time}", "timeout .* is no time") for time in ("nan", "inf", "-1")),
        ("sqlite:///study.db?timeout=1&timeout=2", "its options cannot be used"),
        ("sqlite:///study.db?detect_types=9", "SQLite knows no option 'detect_types'; known: timeout,"),
        ("sqlite:///study.db?uri=perhaps", "its options cannot be used"),
        ("sqlite:///stu\0dy.db", "the storage URL holds a character that no URL can hold"),
        ("sqlite:///stu\udcf6dy.db", "the storage URL holds a character that no URL can hold"),
        ("postgresql+psycopg://tuner:hunter2@/studies?host=a&port=b", "its options cannot be used: .*port"),
        ("sqlite:///~/study.db", "sqlite:///~/study.db: nothing expands the ~ in a URL"),
    ],
)
def test_an_unusable_url_is_refused_without_its_password(url: str, reason: str) -> None:
    with pytest.raises(StoreError, match=reason) as refusal:
        checked_url(url)
    assert "hunter2" not in str(refusal.value)


def test_a_url_is_shown_without_password_and_options() -> None:
    assert shown("postgresql+psycopg://a:b@host/db?password=b") == "postgresql+psycopg://a:***@host/db"
    assert shown("sqlite:///runs/pi_plus/study.db") == "sqlite:///runs/pi_plus/study.db"


def test_what_is_no_url_is_not_shown() -> None:
    with pytest.raises(StoreError, match="it is no database URL; its form is sqlite:///PATH"):
        shown("hunter2")


def test_a_usable_url_keeps_all_that_it_says() -> None:
    url = "sqlite:///runs/demo/study.db?timeout=7"
    assert checked_url(url).render_as_string(hide_password=False) == url
