"""Every fault once, with real processes: the probe finds the kind of failure, and no process is left."""

from pathlib import Path

import psutil
import pytest

from tuner.probe.console import Bounds
from tuner.testing.faulty.strikes import STRIKES
from tuner.testing.faulty.suite import SCENARIOS, probe


@pytest.mark.parametrize("fault", SCENARIOS)
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
