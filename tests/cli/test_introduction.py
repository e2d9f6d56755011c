"""The text that commands print before they begin."""

from io import StringIO
from pathlib import Path

from rich.console import Console
from tests_loop import bench, bounded, spec

from tuner.cli.hints import introduction
from tuner.study.cases import Case

CASES = [Case(name=name) for name in ("walk", "run", "fly")]
SMALL = "its buffer is small; buy another"


def introduced(folder: Path, most: int, *only: str) -> list[str]:
    console = Console(file=StringIO(), width=200)
    with console.capture() as shown:
        introduction(console, bounded(bench(folder, spec()), most, *only), CASES, "sqlite://")
    return shown.get().splitlines()


def test_rungs_that_are_left_out_are_shown_once_for_all_cases_with_the_same_reason(tmp_path: Path) -> None:
    assert introduced(tmp_path, 40, "walk", "fly")[-1] == f"walk, fly: num_envs up to 40: {SMALL}"
    assert not [line for line in introduced(tmp_path, 64) if SMALL in line]
