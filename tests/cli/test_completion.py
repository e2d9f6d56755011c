"""What Tab offers, asked as bash asks for it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests_cli import Tuner, study_file

Offered = Callable[[str], list[str]]


@pytest.fixture
def offered(tuner: Tuner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Offered:
    """Return a function that gives the words that complete a line, where there is a study called walking."""
    (tmp_path / "studies").mkdir()
    study_file(tmp_path).rename(tmp_path / "studies/walking.yaml")

    def ask(line: str) -> list[str]:
        monkeypatch.setenv("_TUNER_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
        code, out, err = tuner()
        assert (code, err) == (0, "")
        return out.split()

    return ask


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("tuner stat", ["status"]),
        ("tuner status --js", ["--json"]),
        ("tuner status --study wal", ["walking"]),
        ("tuner status --study ./my_study", []),
        ("tuner optimize --study walking --cases ", ["walk", "run"]),
        ("tuner optimize --study walking --cases run,w", ["run,walk"]),
        ("tuner optimize --study missing --cases ", []),
        ("tuner optimize --cases ", []),
    ],
)
def test_tab_completes(offered: Offered, line: str, words: list[str]) -> None:
    assert offered(line) == words


def test_bash_is_told_how_to_ask(tuner: Tuner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")  # not every run of the tests has a shell
    code, out, _ = tuner("--show-completion", "bash")
    assert (code, "_TUNER_COMPLETE=complete_bash" in out) == (0, True)
