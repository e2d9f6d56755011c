"""What is launched for the workloads. Planning does not load torch."""

import subprocess
import sys
from pathlib import Path

import pytest

from tuner.tools.scaling.subjects import NAMES, PPO, built_in, workload_plan
from tuner.tools.scaling.workloads.__main__ import team_from
from tuner.trainers.trainer_check import make_slot


def test_a_session_serves_every_workload(tmp_path: Path) -> None:
    plans = [workload_plan(name, {"size": 64}, make_slot(tmp_path, gpu=True)) for name in NAMES if name != PPO]
    assert len({(plan.session_key, plan.argv) for plan in plans}) == 1
    assert team_from(list(plans[0].argv[3:])).devices == ("cuda:0", "cuda:1")


@pytest.mark.parametrize("exchange", [False, True])
def test_the_request_says_what_the_config_says(exchange: bool, tmp_path: Path) -> None:
    scaled = built_in("fusion", gpu=False, window_s=1.0)
    request = scaled.plan(scaled.config(64, exchange), make_slot(tmp_path)).request or {}
    assert (request["workload"], request["config"]) == ("fusion", {"size": 64, "exchange": exchange})


@pytest.mark.parametrize("words", [["--devices", "gpu"], ["--devices", "cpu", "--master-port", "x"], []])
def test_a_wrong_command_line_ends_with_status_2(words: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        team_from(words)


def test_no_torch_is_imported() -> None:
    code = "import sys, tuner.tools.scaling.subjects, tuner.cli.scale; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
