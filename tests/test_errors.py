"""What messages about a missing extra advise."""

from pathlib import Path

import pytest

from tuner.errors import SOURCE, installs


def test_in_a_clone_the_clone_is_installed_with_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(SOURCE)
    assert installs("report") == "`pip install -e '.[report]'`"
    monkeypatch.chdir(tmp_path)
    assert installs("report") == f"`pip install -e '{SOURCE}[report]'`"


def test_elsewhere_the_installed_package_gets_the_extra(tmp_path: Path) -> None:
    assert installs("report", source=tmp_path) == "`pip install 'launch-tuner[report]'`"
