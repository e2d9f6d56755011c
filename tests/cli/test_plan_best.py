"""`tuner plan --best`: what a study has found, as a script to train with."""

import re
import sys
from pathlib import Path

import pytest
from tests_cli import TRAINER, Tuner, study_file


@pytest.fixture
def study(tmp_path: Path) -> Path:
    package = Path(sys.modules["tuner"].__file__ or "").parent
    command = [sys.executable, str(tmp_path / "train.py"), "{num_envs}", str(package), "--last", "{iterations}"]
    space = {"num_envs": {"ladder": [16]}, "pruner_patience": {"choices": [2]}}
    trainer = {"name": "command", "options": {"command": command, "cases": ["walk", "run"]}}
    file = study_file(tmp_path, trainer=trainer, space=space)
    (tmp_path / "train.py").write_text(TRAINER.replace("0.02", "0.12"))  # long enough for a standard error
    return file


def test_the_best_is_printed_with_where_it_comes_from_and_without_a_probes_end(tuner: Tuner, study: Path) -> None:
    _, out, _ = tuner("optimize", "--study", study, "--n-trials", 1)
    assert " ".join(out.split()).endswith(
        f"`tuner plan --study {study} --best` prints the best as a script to train with"
    )
    code, out, err = tuner("plan", "--study", study, "--best")
    assert (code, err) == (0, "")
    origin, config, *script = out.splitlines()
    assert re.fullmatch(r"# walk: trial #0: min_avg_util \d+\.\d ± \d+\.\d", origin)
    assert config == '# walk: {"num_envs": 16}'
    assert script[0].endswith("runs/demo/best/walk")
    assert ("train.py 16 " in out, "--last" in out) == (True, False)
    assert " --last 20\n" in tuner("plan", "--study", study)[1]


def test_a_case_without_a_best_is_left_out_and_said(tuner: Tuner, study: Path) -> None:
    tuner("optimize", "--study", study, "--n-trials", 1)
    code, out, err = tuner("plan", "--study", study, "--best", "--cases", "*")
    assert (code, err) == (0, "run: left out, it has no best config yet\n")
    assert "# run" not in out
    code, out, err = tuner("plan", "--study", study, "--best", "--cases", "run")
    assert (code, out, "no best config yet for run" in err) == (2, "", True)


def test_a_best_for_other_devices_says_where_it_was_measured(tuner: Tuner, study: Path) -> None:
    tuner("optimize", "--study", study, "--n-trials", 1)
    _, out, _ = tuner("plan", "--study", study, "--best", "--devices", "cpu:1")
    assert re.search(r"^# walk: measured on cpu:0 .*, cpu:1 .*, launched here on cpu:0 ", out, re.MULTILINE)


def test_a_best_that_would_be_launched_otherwise_now_says_so(tuner: Tuner, study: Path) -> None:
    tuner("optimize", "--study", study, "--n-trials", 1)
    changed = "# walk: measured otherwise than it is launched here"
    assert changed not in tuner("plan", "--study", study, "--best")[1]
    study.write_text(study.read_text().replace("--last", "--until"))
    assert changed in tuner("plan", "--study", study, "--best")[1]


def test_the_best_is_that_of_the_database_asked_for(tuner: Tuner, study: Path, tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path / 'elsewhere.db'}"
    tuner("optimize", "--study", study, "--n-trials", 1, "--storage", storage)
    code, _, err = tuner("plan", "--study", study, "--best")
    assert (code, "no study database" in err) == (2, True)
    assert "trial #0" in tuner("plan", "--study", study, "--best", "--storage", storage)[1]


def test_the_best_takes_no_settings(tuner: Tuner, study: Path) -> None:
    code, out, err = tuner("plan", "--study", study, "--best", "--set", "num_envs=16")
    assert (code, out, "give one of the two" in err) == (2, "", True)
