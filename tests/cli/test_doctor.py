"""`tuner doctor`: plain lines if the output is no terminal, and exit code 2 if there is a problem."""

import sys
from pathlib import Path

import pytest
from tests_cli import Tuner, study_file


def test_findings_on_a_sound_machine_are_plain_lines(tuner: Tuner, tmp_path: Path) -> None:
    code, out, err = tuner("doctor", "--study", study_file(tmp_path))
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert any(line.startswith("ok       devices: no GPU: 2 CPU rank(s)") for line in lines)
    assert all(line.split()[0] in ("ok", "warning") for line in lines)
    assert not (tmp_path / "runs").exists()


def test_problems_are_listed_and_counted(tuner: Tuner, tmp_path: Path) -> None:
    other = tmp_path / "notes.db"
    other.write_text("these are my notes, not a database; " * 40)
    study = study_file(tmp_path)
    code, out, err = tuner("doctor", "--study", study, "--devices", "0,97", "--storage", f"sqlite:///{other}")
    assert code == 2
    assert [line.split()[1] for line in out.splitlines() if line.startswith("problem")] == ["devices:", "storage:"]
    for words in ("2 problem(s) with study demo", "0,97", "notes.db"):
        assert words in err
    assert "Traceback" not in out + err


def test_a_trainer_whose_python_lacks_its_modules(
    tuner: Tuner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # -S: without site-packages
    python.chmod(0o755)
    monkeypatch.setenv("PYTHONPATH", "")
    study = study_file(tmp_path, trainer={"name": "reference", "python": str(python)}, cases=["*"])
    code, _, err = tuner("doctor", "--study", study)
    assert code == 2
    assert f"{python} lacks tuner, numpy, torch; install them there" in err


def test_on_a_terminal_each_finding_has_the_colour_of_its_level(
    tuner: Tuner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    code, out, _ = tuner("doctor", "--study", study_file(tmp_path))
    assert code == 0
    assert "\x1b[32mok       disk: " in out


def test_a_misspelt_study(tuner: Tuner) -> None:
    code, _, err = tuner("doctor", "--study", "pi_pluss")
    assert (code, "pi_pluss" in err) == (2, True)
