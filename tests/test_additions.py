"""The edits that CONTRIBUTING.md lists for a metric, a failure and an export, made to a copy of `tuner`.

The commands of the copy then use what was added; nothing else is changed.
"""

import json
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
    '    Metric("power_max_w", "W", _of_devices(max, attrgetter("power_max_w")), combine=max),',
)
FAILURE_LINES = (
    Line("probe/result.py", "    HANG = ", '    NO_LOGIN = "no_login"'),
    Line(
        "probe/failures.toml",
        "[hang]",
        '[no_login]\nblame = "setup"\nremedy = "log in to wandb, or turn it off"\n'
        "rules = { login = ['api_key not configured'] }\n",
    ),
)
EXPORT = """
from tuner.export.reader import StudyReader
from tuner.export.tables import Sheet

def device_seconds(study: StudyReader) -> Sheet:
    trials = [trial for trial in study.trials() if trial.probe.total_s]
    seconds = [len(trial.probe.devices) * trial.probe.total_s for trial in trials]
    rows = [{"trial": trial.number, "device_s": one} for trial, one in zip(trials, seconds, strict=True)]
    return Sheet(("trial", "device_s"), rows)
"""
EXPORT_LINES = (
    Line("export/tables.py", "from tuner.export.reader", "from tuner.export.device_seconds import device_seconds"),
    Line("export/tables.py", '    "best_by_case.tsv"', '    "device_seconds.tsv": device_seconds,'),
)


COMMANDS = """
import json, sys
from tuner.cli.main import main

for words in json.loads(sys.argv[1]):
    sys.argv = ["tuner", *words]
    try:
        main()
    except SystemExit:
        pass
"""
"""Runs several commands in one process, because the imports of one take most of its time."""


class Ran(NamedTuple):
    """What the commands of the changed copy left: their folder with `runs/`, and what they printed."""

    folder: Path
    printed: str

    def table(self, name: str) -> pd.DataFrame:
        return pd.read_csv(self.folder / "runs" / name, sep="\t")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Add a metric, a failure and an export to a copy of the package, and run two studies with it."""
    package, folder = tmp_path_factory.mktemp("copied"), tmp_path_factory.mktemp("ran")
    shutil.copytree(ROOT / "tuner", package / "tuner")
    (package / "tuner/export/device_seconds.py").write_text(EXPORT, encoding="utf-8")
    for line in (METRIC, *FAILURE_LINES, *EXPORT_LINES):
        file = package / "tuner" / line.file
        head, found, tail = file.read_text(encoding="utf-8").partition(f"\n{line.before}")
        assert found
        file.write_text(f"{head}\n{line.text}{found}{tail}", encoding="utf-8")
    (folder / "replayed").mkdir()
    replayed = study_file(folder / "replayed", name="replayed", constraints={"power_max_w": "<= 1"})
    command = {"command": "sh -c 'echo wandb: api_key not configured; exit 1' {num_envs}", "cases": ["walk"]}
    failing = study_file(folder, name="failing", trainer={"name": "command", "options": command})
    commands = [
        ["optimize", "--study", str(replayed), "--replay", str(TABLE), "--n-trials", "1"],
        ["optimize", "--study", str(failing), "--devices", "cpu:1"],
    ]
    return Ran(folder, run(package, folder, commands))


def test_a_metric_is_a_column_and_a_constraint(ran: Ran) -> None:
    assert "not eligible as best, power_max_w" in ran.printed
    assert min(ran.table("replayed-replay/trials.tsv")["power_max_w"]) > 100.0
    assert "power_max_w" in ran.table("replayed-replay/best_by_case.tsv").columns


def test_an_export_is_written_with_the_others(ran: Ran) -> None:
    written, trials = ran.table("replayed-replay/device_seconds.tsv"), ran.table("replayed-replay/trials.tsv")
    assert [*written["trial"]] == [*trials["trial"]]
    assert [*written["device_s"]] == pytest.approx([*trials["total_s"] * 2], abs=0.6)


def test_a_failure_is_recognised_ends_the_case_and_says_what_to_do(ran: Ran) -> None:
    assert "log in to wandb, or turn it off" in ran.printed
    assert [*ran.table("failing/trials.tsv")["status"]] == ["no_login"]
    assert [*ran.table("failing/best_by_case.tsv")["status"]] == ["no_login"]


def run(package: Path, folder: Path, commands: Sequence[Sequence[str]]) -> str:
    """Run commands of the package in `package`, in a folder, and return what they print."""
    argv = [sys.executable, "-c", COMMANDS, json.dumps(commands)]
    environment = {**os.environ, "PYTHONPATH": str(package), "COLUMNS": "300"}
    return subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout
