"""The text that commands print before they begin."""

import os
import re
import subprocess
from dataclasses import replace
from io import StringIO
from pathlib import Path

import psutil
from rich.console import Console
from tests_cli import Tuner, study_file
from tests_loop import bench, bounded, spec

from tuner.cli.hints import introduction
from tuner.devices.cpu import CpuSource, usable_cores
from tuner.probe.guard import GUARD_VARIABLE, identity
from tuner.study.cases import Case

CASES = [Case(name=name) for name in ("walk", "run", "fly")]
SMALL = "its buffer is small; buy another"


def introduced(folder: Path, most: int, *only: str, url: str = "sqlite://") -> list[str]:
    console = Console(file=StringIO(), width=200)
    with console.capture() as shown:
        introduction(console, bounded(bench(folder, spec()), most, *only), CASES, url)
    return shown.get().splitlines()


def test_a_server_without_a_lock_is_refused(tuner: Tuner, tmp_path: Path) -> None:
    study, url = study_file(tmp_path), "mysql+pymysql://me:hunter2@host/db"
    for command in (("optimize",), ("worker",), ("optimize", "--workers", "2", "--gpus-per-trial", "1"), ("doctor",)):
        code, out, err = tuner(*command, "--study", study, "--storage", url)
        assert (code, "does not work on mysql" in out + err, "hunter2" in out + err) == (2, True, False)


def test_rungs_that_are_left_out_are_shown_once_for_all_cases_with_the_same_reason(tmp_path: Path) -> None:
    assert introduced(tmp_path, 40, "walk", "fly")[-1] == f"walk, fly: num_envs up to 40: {SMALL}"
    assert not [line for line in introduced(tmp_path, 64) if SMALL in line]


def test_another_tuner_that_probes_on_the_same_cpu_is_named(tmp_path: Path) -> None:
    guard = os.getppid()  # stands in for the guard of a probe, and its parent for the tuner
    desk, shown = replace(bench(tmp_path, spec()), source=CpuSource(1)), Console(file=StringIO(), width=200)
    probe = subprocess.Popen(["/bin/sleep", "60"], env={GUARD_VARIABLE: identity(guard)})
    try:
        with shown.capture() as lines:
            introduction(shown, desk, CASES, "sqlite://", workers=usable_cores() + 1)
    finally:
        probe.kill()
        probe.wait()
    assert re.search(rf"another tuner probes on this CPU.*\b{psutil.Process(guard).ppid()}\b", lines.get())
    assert f"{usable_cores() + 1} workers with {len(desk.devices)} rank" in lines.get()
