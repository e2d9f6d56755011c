"""Every fault once, with real processes: the probe finds the kind of failure, and no process is left."""

from pathlib import Path

import psutil
import pytest

from tests.support.tests_faulty.scenarios import SCENARIOS
from tests.support.tests_faulty.strikes import STRIKES
from tests.support.tests_faulty.suite import probe
from tuner.probe.output import Bounds

pytestmark = pytest.mark.early

SHOWN_ELSEWHERE = [
    *("killed_guard", "stopped_guard", "stopped_rank", "odd_sizes", "old_lines", "slow_first_iterations", "own_counts"),
    *("busy_beyond_elapsed", "huge_iterations", "timesteps_as_iterations"),
    *("progress_is_a_folder", "progress_is_a_pipe", "out_dir_is_a_file"),
    *("nan_progress", "negative_progress", "progress_backwards", "huge_counts", "odd_ranks"),  # test_lines_and_reader
    *("oom_after_ten_iterations", "busy_loop", "collective_timeout"),  # test_liveness
    "missing_package",  # test_run
]
"""Faults that tests without a whole probe show, too; `pytest -m faults` probes them."""


@pytest.mark.parametrize(
    "fault", [pytest.param(fault, marks=pytest.mark.faults if fault in SHOWN_ELSEWHERE else ()) for fault in SCENARIOS]
)
def test_a_fault_is_named_and_leaves_nothing(fault: str, tmp_path: Path) -> None:
    outcome = probe(fault, tmp_path / "out", bounds=Bounds(term_grace_s=0.5))
    assert outcome.deviations(SCENARIOS[fault]) == []


def test_every_fault_has_its_scenario() -> None:
    assert STRIKES.keys() == SCENARIOS.keys()


def test_what_is_left_running_is_found(tmp_path: Path) -> None:
    with psutil.Popen(["sleep", "1000"], env={"TUNER_PROGRESS": str(tmp_path / "out/progress.jsonl")}) as left:
        outcome = probe("missing_file", tmp_path / "out")
        left.kill()
    assert [name for name in outcome.left if f"pid={left.pid}" in name]
    assert outcome.deviations(SCENARIOS["missing_file"])
