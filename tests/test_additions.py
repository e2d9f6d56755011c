"""The edits that docs/structure.md lists for a metric, a failure and an export, made to a copy of `tuner`.

The commands of the copy then use what was added; nothing else is changed.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest
from tests_cli import study_file
from tests_docs import ROOT

TABLE = ROOT / "benchmarks/tables/pi_plus_two_h200/deepmimic_pi_plus_ppo.parquet"


class Line(NamedTuple):
    """One line that is added to a file of the package, before the line that begins with `before`."""

    file: str
    before: str
    text: str


METRIC = Line(
    "probe/metrics.py",
    '    Metric("energy_j"',
    '    Metric("power_max_w", "W", lambda r: _most(_each(r, lambda d: d.power_max_w)), over=max),',
)
FAILURE = Line(
    "probe/kinds.py",
    "    HANG = ",
    '    NO_LOGIN = _Row(word="no_login", blame=Blame.SETUP, rules=(_rule("login", r"api_key not configured"),), '
    'remedy="log in to wandb, or turn it off")',
)
EXPORT = """
from tuner.export.query import StudyReader

def device_seconds(study: StudyReader) -> list[str]:
    trials = [trial for trial in study.trials() if trial.probe.total_s]
    return [f"{trial.number} {len(trial.devices) * trial.probe.total_s:.0f}\\n" for trial in trials]
"""
EXPORT_LINES = (
    Line("export/write.py", "from tuner.export.database", "from tuner.export.device_seconds import device_seconds"),
    Line("export/write.py", '    "best_by_case.tsv"', '    "device_seconds.txt": device_seconds,'),
)


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a copy of the package in which a metric, a failure and an export have been added."""
    folder = tmp_path_factory.mktemp("copied")
    shutil.copytree(ROOT / "tuner", folder / "tuner")
    (folder / "tuner/export/device_seconds.py").write_text(EXPORT, encoding="utf-8")
    for line in (METRIC, FAILURE, *EXPORT_LINES):
        file = folder / "tuner" / line.file
        head, found, tail = file.read_text(encoding="utf-8").partition(f"\n{line.before}")
        assert found
        file.write_text(f"{head}\n{line.text}{found}{tail}", encoding="utf-8")
    return folder


def test_a_metric_is_a_column_and_a_constraint_and_an_export_is_written(copied: Path, tmp_path: Path) -> None:
    study = study_file(tmp_path, constraints={"power_max_w": "<= 1"}, space={"num_envs": {"ladder": [1]}})
    printed = tuner(copied, tmp_path, ["optimize", "--study", str(study), "--replay", str(TABLE), "--n-trials", "1"])
    assert "not eligible as best, power_max_w" in printed
    run = tmp_path / "runs/demo-replay"
    trials = pd.read_csv(run / "trials.tsv", sep="\t")
    assert min(trials["power_max_w"]) > 100.0
    assert "power_max_w" in pd.read_csv(run / "best_by_case.tsv", sep="\t").columns
    seconds = [line.split() for line in (run / "device_seconds.txt").read_text(encoding="utf-8").splitlines()]
    assert [int(number) for number, _ in seconds] == [*trials["trial"]]
    assert [float(taken) for _, taken in seconds] == pytest.approx([*trials["total_s"] * 2], abs=0.6)


def test_a_failure_is_recognised_ends_the_case_and_says_what_to_do(copied: Path, tmp_path: Path) -> None:
    command = {"command": "sh -c 'echo wandb: api_key not configured; exit 1' {num_envs}", "cases": ["walk"]}
    study = study_file(tmp_path, trainer={"name": "command", "options": command})
    printed = tuner(copied, tmp_path, ["optimize", "--study", str(study), "--devices", "cpu:1"])
    assert "log in to wandb, or turn it off" in printed
    trials = pd.read_csv(tmp_path / "runs/demo/trials.tsv", sep="\t")
    assert [*trials["status"]] == ["no_login"]
    assert [*pd.read_csv(tmp_path / "runs/demo/best_by_case.tsv", sep="\t")["status"]] == ["no_login"]


def tuner(package: Path, folder: Path, words: Sequence[str]) -> str:
    """Run a command of the package in `package`, in a folder, and return what it prints."""
    environment = {**os.environ, "PYTHONPATH": str(package), "COLUMNS": "300"}
    return subprocess.run(
        [sys.executable, "-m", "tuner", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    ).stdout
