"""`tuner doctor`: plain lines if the output is no terminal, and exit code 2 if there is a problem."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests_cli import Tuner, study_file


def test_findings_on_a_sound_machine_are_plain_lines(tuner: Tuner, tmp_path: Path) -> None:
    code, out, err = tuner("doctor", "--study", study_file(tmp_path))
    assert (code, err) == (0, "")
    *found, left = out.splitlines()
    assert left.startswith("not checked: ")
    assert any("devices: no GPU: 2 CPU ranks" in line for line in found)  # a warning on one core
    assert levels(found)["objective:"] == levels(found)["parameters:"] == levels(found)["storage:"] == "ok"
    assert {*levels(found).values()} <= {"ok", "warning"}
    assert not (tmp_path / "runs").exists()


def levels(lines: Iterable[str]) -> dict[str, str]:
    """Return the level of each subject; of the last line, where it has several."""
    return {subject: level for level, subject, *_ in map(str.split, lines)}


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
    assert "\x1b[32mok       storage: " in out  # green
    assert "\x1b[33mwarning  command: " in out  # yellow: it names neither ranks nor devices


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
    found = levels(line for line in out.splitlines() if not line.startswith("not checked: "))
    assert {"devices:", "machine:", "imports:", "disk:"} <= found.keys()
    assert found["imports:"] == "warning"  # nothing that was named needs torch
    assert "not checked: a trainer and what it imports: " in out
    assert "not checked: a database: " in out


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("ranks", [1, 2])
def test_the_devices_that_are_asked_for_are_checked(tuner: Tuner, ranks: int) -> None:
    document = json.loads(tuner("doctor", "--devices", f"cpu:{ranks}", "--json")[1])
    (devices,) = [finding["text"] for finding in document["findings"] if finding["subject"] == "devices"]
    assert (document["study"], f"{ranks} CPU rank" in devices) == (None, True)
    assert any("`tuner scale`" in text for text in document["not_checked"]) is (ranks > 1)


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
    ("command", "warned"),
    [
        ("python -m venv x", "lacks torch;"),
        ("python -m torch.distributed.run -m axolotl.cli.train", "lacks torch;"),
        ("torchrun --nproc-per-node 2 -m torchtitan.train", "lacks torch;"),
        ("docker run img python /app/train.py", "no Python of the training is found here"),
        ("bash -c 'cd sub && python x.py'", "lacks torch;"),
        ("python plain.py", "lacks torch, nowhere;"),
        ("nohup python plain.py", "lacks torch, nowhere;"),
    ],
)
def test_a_command_that_may_work_is_no_problem(
    tuner: Tuner, tmp_path: Path, bare: Path, command: str, warned: str
) -> None:
    (tmp_path / "plain.py").write_text("import nowhere\n")
    (bare / "docker").write_text("#!/bin/sh\n")
    (bare / "docker").chmod(0o755)
    code, out, err = tuner("doctor", "--", command)
    assert (code, err) == (0, ""), out
    (imports,) = [line for line in out.splitlines() if " imports: " in line]
    assert imports.startswith(f"warning  imports: {bare / 'python'} {warned}" if "lacks" in warned else "warning  ")
    assert warned in imports


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(
    "before", ["PYTHONPATH=lib", "PYTHONPATH=lib nohup", "env PYTHONPATH=lib", "nohup env PYTHONPATH=lib"]
)
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
    code, out, err = tuner("doctor", "--", f"{before} {python} train.py")
    assert (code, err) == (0, ""), out
    assert f"{python} imports torch 7, walkers 7" in " ".join(out.split())


def test_a_command_or_a_study_is_checked_and_not_both(tuner: Tuner) -> None:
    code, _, err = tuner("doctor", "--study", "demo", "--", "python", "train.py")
    assert (code, "--study" in err) == (2, True)


def test_a_misspelt_study(tuner: Tuner) -> None:
    code, _, err = tuner("doctor", "--study", "pi_pluss")
    assert (code, "pi_pluss" in err) == (2, True)
