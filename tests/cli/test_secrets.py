"""A key that a study refers to reaches the trainer, and no file, table, message or script of tuner."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests_cli import Tuner, study_file

KEY = "wk-0a1b2c3d4e5f67"
LAUNCHED = ("--launch", "nccl", "--devices", "cpu:2")
LEAKS = """
import json, os, sys
sys.stderr.write("key " + sys.argv[2][:5])
sys.stderr.flush()
print(sys.argv[2][5:], os.environ["KEY"])
with open(os.environ["TUNER_PROGRESS"], "a") as file:
    file.write(json.dumps({"type": "failed", "rank": 0, "detail": "401 for " + os.environ["KEY"]}) + "\\n")
raise SystemExit("RuntimeError: cannot log in with " + sys.argv[2])
"""


def everything_below(folder: Path) -> bytes:
    """Return what all files hold but the trainer's own, `progress.jsonl`, and the trainer itself."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name not in {"progress.jsonl", "leaks.py"}]
    assert {path.name for path in files} >= {"study.db", "console.log", "trials.tsv"}
    return b"\n".join(path.read_bytes() for path in files)


def test_a_key_in_the_command_and_the_environment_is_kept_nowhere(
    tuner: Tuner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    (tmp_path / "leaks.py").write_text(LEAKS)
    words = f"{sys.executable} {tmp_path}/leaks.py {{num_envs}} ${{WANDB_API_KEY}} --seed ${{SEED:-7}}"
    options = {"command": words, "cases": ["walk"], "env": {"KEY": "${WANDB_API_KEY}"}}
    study = study_file(tmp_path, trainer={"name": "command", "options": options}, cases=["walk"])

    said = [tuner("optimize", "--study", study, "--n-trials", "2")]
    said += [tuner(command, "--study", study) for command in ("status", "export", "plan", "try")]
    shown = "".join(out + err for _, out, err in said)
    assert KEY not in shown
    assert KEY.encode() not in everything_below(tmp_path)
    assert "401 for ${WANDB_API_KEY}" in shown
    (log, *_) = (tmp_path / "runs/demo/probes").rglob("console.log")
    assert log.read_text() == (
        "key ${WANDB_API_KEY} ${WANDB_API_KEY}\nRuntimeError: cannot log in with ${WANDB_API_KEY}\n"
    )
    script = said[3][1]
    by_hand = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=False)
    assert f"cannot log in with {KEY}" in by_hand.stderr

    monkeypatch.setenv("WANDB_API_KEY", "wk-rotated-000000")
    _, out, err = tuner("optimize", "--study", study, "--n-trials", "3")
    assert "was started with other settings" not in err
    assert KEY not in out + err


UNKNOWN = "hf_0A1b2C3d4E5f6G7h8"
QUOTES = f"""
import json, os
with open(os.environ["TUNER_PROGRESS"], "a") as file:
    file.write(json.dumps({{"type": "failed", "rank": 0, "detail": "401 for {UNKNOWN}"}}) + "\\n")
raise SystemExit("RuntimeError: cannot log in with {UNKNOWN}")
"""


def quoting(folder: Path) -> Path:
    """Write a study whose trainer prints a key of its own, of which the study knows nothing."""
    (folder / "leaks.py").write_text(QUOTES)
    words = f"{sys.executable} {folder}/leaks.py {{num_envs}}"
    return study_file(folder, trainer={"name": "command", "options": {"command": words, "cases": ["walk"]}})


def others_can_read(folder: Path) -> list[Path]:
    """Return the files that somebody else can open: each folder on the way and the file itself let others in."""
    here = [one for one in folder.iterdir() if one.stat().st_mode & 0o077 and one.suffix != ".lock"]
    return [one for one in here if one.is_file()] + [
        file for one in here if one.is_dir() for file in others_can_read(one)
    ]


def test_a_key_of_the_trainer_itself_is_quoted_nowhere_and_what_quotes_is_private(tuner: Tuner, tmp_path: Path) -> None:
    study = quoting(tmp_path)
    said = [tuner("optimize", "--study", study, "--n-trials", "1"), tuner("report", "--study", study)]
    said += [tuner(command, "--study", study) for command in ("status", "export", "try")]
    shown = "".join(out + err for _, out, err in said)
    assert "401 for ***" in shown
    assert UNKNOWN not in shown
    assert UNKNOWN.encode() not in everything_below(tmp_path)
    assert (tmp_path / "runs/demo/report.html").is_file()
    assert others_can_read(tmp_path / "runs") == []


def test_a_key_in_a_log_is_not_shown(tuner: Tuner, tmp_path: Path) -> None:
    study = quoting(tmp_path)
    tuner("optimize", "--study", study, "--n-trials", "1")
    for log in (tmp_path / "runs").rglob("console.log"):
        log.write_text(f"RuntimeError: cannot log in with {UNKNOWN}\n")
    shown = "".join("".join(map(str, tuner(command, "--study", study))) for command in ("status", "export", "report"))
    assert UNKNOWN not in shown
    for file in ("report.html", "trials.tsv"):
        assert UNKNOWN not in (tmp_path / "runs/demo" / file).read_text()


def test_a_program_that_is_not_there_is_named_by_its_reference(
    tuner: Tuner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OWN_PROGRAM", "/nowhere/" + KEY)
    options = {"command": "${OWN_PROGRAM} {num_envs}", "cases": ["walk"]}
    study = study_file(tmp_path, trainer={"name": "command", "options": options})
    code, out, err = tuner("optimize", "--study", study)
    assert code == 2
    assert "there is no program '${OWN_PROGRAM}'" in err
    assert KEY not in out + err + tuner("doctor", "--study", study)[1]


LITERAL = "literal-0a1b2c3d4e5f"


def test_a_literal_key_is_warned_of_and_stored_masked(tuner: Tuner, tmp_path: Path) -> None:
    (tmp_path / "leaks.py").write_text(LEAKS)
    words = f"{sys.executable} {tmp_path}/leaks.py {{num_envs}} --api-key={LITERAL}"
    options = {"command": words, "cases": ["walk"], "env": {"KEY": "v", "HF_TOKEN": LITERAL}}
    study = study_file(tmp_path, trainer={"name": "command", "options": options}, cases=["walk"])
    _, out, err = tuner("optimize", "--study", study, "--n-trials", "1")
    assert "HF_TOKEN looks like a key" in out + err
    assert "api-key looks like a key" in out + err
    shown = out + err + "".join(map(str, tuner("plan", "--study", study)))
    assert LITERAL not in shown
    assert '--api-key="${API_KEY}"' in shown
    tuner("export", "--study", study)
    assert LITERAL.encode() not in everything_below(tmp_path / "runs")
    logs = [*(tmp_path / "runs").rglob("console.log"), *(tmp_path / "runs").rglob("study.db")]
    assert len(logs) >= 2
    assert all(file.stat().st_mode & 0o077 == 0 for file in logs)


STEPS = "import time\nfor step in range(9): time.sleep(0.1); print('step', step, flush=True)"


@pytest.fixture
def readable(tmp_path: Path) -> Iterator[list[str]]:
    """Return the study files that others could read, looked at whenever a file is opened, renamed or given a mode."""
    found: list[str] = []
    is_over = False

    def look(event: str, _: object) -> None:
        if event in {"open", "os.rename", "os.chmod"} and not is_over:
            found.extend(one.name for one in tmp_path.glob("studies/*") if one.stat().st_mode & 0o077)

    sys.addaudithook(look)
    yield found
    is_over = True


def test_a_typed_key_is_warned_of_and_at_no_moment_readable_for_others(
    tuner: Tuner, tmp_path: Path, readable: list[str]
) -> None:
    (tmp_path / "leaks.py").write_text(STEPS)
    command = [sys.executable, "leaks.py", "--workers", "2", f"--api-key={LITERAL}"]
    code, out, err = tuner("init", "--yes", "--devices", "cpu:1", "--name", "leaks", "--", *command)
    assert code == 0, out + err
    assert "api-key looks like a key" in " ".join(out.split())
    assert "reading the flags" not in out  # the script reads none
    assert Path("studies/leaks.yaml").stat().st_mode & 0o077 == 0
    assert readable == []


def test_a_study_without_a_key_has_the_mode_of_other_new_files(tuner: Tuner, tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    assert tuner("init", *LAUNCHED, "--name", "mine", "--", "torchrun", "gpt.py")[0] == 0
    assert (tmp_path / "studies/mine.yaml").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_what_is_no_file_is_not_replaced(tuner: Tuner, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    code, _, err = tuner("init", *LAUNCHED, "--out", "pipe.yaml", "--force", "--", "torchrun", "gpt.py")
    assert (code, "pipe.yaml: it is no file" in err) == (2, True)
    assert (tmp_path / "pipe.yaml").is_fifo()
