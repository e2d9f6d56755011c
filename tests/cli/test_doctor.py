"""`tuner doctor`: plain lines if the output is no terminal, and exit code 2 if there is a problem."""

import json
import sys
from pathlib import Path

import pytest
from tests_cli import Tuner, study_file


def test_findings_on_a_sound_machine_are_plain_lines(tuner: Tuner, tmp_path: Path) -> None:
    code, out, err = tuner("doctor", "--study", study_file(tmp_path))
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert any("devices: no GPU: 2 CPU ranks" in line for line in lines)  # a warning on one core
    assert all(line.split()[0] in {"ok", "warning", "not"} for line in lines)
    assert not (tmp_path / "runs").exists()


def test_problems_are_listed_and_counted(tuner: Tuner, tmp_path: Path) -> None:
    other = tmp_path / "notes.db"
    other.write_text("these are my notes, not a database; " * 40)
    study = study_file(tmp_path)
    code, out, err = tuner("doctor", "--study", study, "--devices", "0,97", "--storage", f"sqlite:///{other}")
    assert code == 2
    assert [line.split()[1] for line in out.splitlines() if line.startswith("problem")] == ["devices:", "storage:"]
    for words in ("2 problems with study demo", "0,97", "notes.db"):
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


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a Python that knows no torch; the shell finds no other program there."""
    (folder := tmp_path / "bin").mkdir()
    for name in ("python", "torchrun"):
        (folder / name).write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # -S: without site-packages
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("PYTHONPATH", "")
    return folder


@pytest.mark.usefixtures("bare")
def test_without_a_study_the_machine_is_checked_and_what_is_not_is_said(tuner: Tuner) -> None:
    code, out, err = tuner("doctor")
    assert (code, err) == (0, "")
    subjects = [line.split()[1] for line in out.splitlines() if line.split()[0] in {"ok", "warning"}]
    assert {"devices:", "machine:", "imports:", "disk:"} <= set(subjects)
    assert [line for line in out.splitlines() if line.startswith("not checked: ")]
    assert "warning  imports: " in out  # nothing that was named needs torch
    document = json.loads(tuner("doctor", "--json")[1])
    assert (document["study"], len(document["not_checked"]) > 1) == (None, True)


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("python train.py --epochs 3", "lacks torch"),
        ("torchrun train.py", "lacks torch"),
        ("python nope.py", "no script nope.py"),
        ("nosuch train.py", "no program 'nosuch'"),
    ],
)
@pytest.mark.usefixtures("bare")
def test_a_command_needs_its_program_its_script_and_what_it_imports(
    tuner: Tuner, tmp_path: Path, command: str, problem: str
) -> None:
    (tmp_path / "train.py").write_text("import json, torch.nn\nfrom walkers import legs\nimport beside\n")
    (tmp_path / "beside.py").write_text("raise SystemExit\n")  # nothing of a training runs
    code, out, err = tuner("doctor", "--", *command.split())
    assert (code, problem in err) == (2, True), out
    assert "beside" not in out + err
    assert ("lacks walkers" in out) == ("lacks torch" in problem)  # a warning


@pytest.mark.parametrize(
    "command",
    [
        "python -m venv x",
        "python -m torch.distributed.run -m axolotl.cli.train",
        "torchrun --nproc-per-node 2 -m torchtitan.train",
        "docker run img python /app/train.py",
        "bash -c 'cd sub && python x.py'",
        "python plain.py",
        "nohup python plain.py",
    ],
)
def test_a_command_that_may_work_is_no_problem(tuner: Tuner, tmp_path: Path, bare: Path, command: str) -> None:
    (tmp_path / "plain.py").write_text("import nowhere\n")
    (bare / "docker").write_text("#!/bin/sh\n")
    (bare / "docker").chmod(0o755)
    code, out, err = tuner("doctor", "--", command)
    assert (code, err) == (0, ""), out


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("before", ["", "nohup ", "env A=b "])
def test_the_python_behind_other_programs_gets_the_typed_variables(tuner: Tuner, tmp_path: Path, before: str) -> None:
    python = tmp_path / "other" / "python3"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    for package in ("lib/torch", "lib/walkers"):
        (tmp_path / package).mkdir(parents=True)
        (tmp_path / package / "__init__.py").write_text("__version__ = '7'\n")
    (tmp_path / "walkers").mkdir()  # of data, which hides no package
    (tmp_path / "train.py").write_text("import torch, walkers\n")
    code, out, err = tuner("doctor", "--", f"PYTHONPATH=lib {before}{python} train.py")
    assert (code, err) == (0, ""), out
    assert f"{python} imports torch 7, walkers 7" in " ".join(out.split())


def test_a_command_or_a_study_is_checked_and_not_both(tuner: Tuner) -> None:
    code, _, err = tuner("doctor", "--study", "demo", "--", "python", "train.py")
    assert (code, "--study" in err) == (2, True)


def test_a_misspelt_study(tuner: Tuner) -> None:
    code, _, err = tuner("doctor", "--study", "pi_pluss")
    assert (code, "pi_pluss" in err) == (2, True)
