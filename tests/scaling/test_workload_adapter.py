"""The workloads as a trainer: what is launched, and what is refused. Planning does not load torch."""

import subprocess
import sys
from pathlib import Path

import pytest

from tuner.errors import TrainerError
from tuner.scaling.subjects import WorkloadTrainer
from tuner.scaling.workloads.__main__ import settings_from
from tuner.scaling.workloads.catalogue import CATALOGUE
from tuner.study.cases import Case
from tuner.study.space import Config
from tuner.study.spec import TrainerSpec
from tuner.testing.trainers import check_trainer, make_slot

TRAINER = WorkloadTrainer(TrainerSpec(name="workload"))
CONFIGS: list[Config] = [{"size": 64}, {"size": 64, "exchange": False}, {"size": 128}]


@pytest.mark.parametrize("workload", CATALOGUE)
def test_it_keeps_the_promises_of_a_trainer(workload: str, tmp_path: Path) -> None:
    check_trainer(TRAINER, case=workload, configs=CONFIGS, out_dir=tmp_path / "probe")


@pytest.mark.parametrize("config", CONFIGS)
def test_the_command_line_says_what_the_config_says(config: Config, tmp_path: Path) -> None:
    plan = TRAINER.plan(Case(name="fusion"), config, make_slot(tmp_path, gpu=True))
    team, settings = settings_from(list(plan.argv[3:]))
    assert team.devices == ("cuda:0", "cuda:1")
    assert settings is not None
    assert (settings.workload, settings.size) == ("fusion", config["size"])
    assert settings.exchange is config.get("exchange", True)


def test_a_session_serves_every_workload(tmp_path: Path) -> None:
    plans = [TRAINER.warm_plan(Case(name=name), CONFIGS[0], make_slot(tmp_path)) for name in CATALOGUE]
    assert len({(plan.session_key, plan.argv) for plan in plans}) == 1
    assert settings_from(list(plans[0].argv[3:]))[1] is None


@pytest.mark.parametrize(
    ("workload", "config", "said"),
    [
        ("nonsense", {"size": 64}, "unknown; known: fusion, voxelize, pipeline, allreduce"),
        ("fusion", {}, "size None"),
        ("fusion", {"size": 0}, "size 0"),
        ("fusion", {"size": True}, "size True"),
        ("fusion", {"size": 64, "exchange": "no"}, "exchange 'no'"),
    ],
)
def test_what_cannot_run_is_refused(workload: str, config: Config, said: str, tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match=said):
        TRAINER.plan(Case(name=workload), config, make_slot(tmp_path))


@pytest.mark.parametrize("words", [["--workload", "fusion"], ["--workload", "fusion", "--size", "x"], []])
def test_a_wrong_command_line_ends_with_status_2(words: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        settings_from(words)


def test_no_torch_is_imported() -> None:
    code = "import sys, tuner.scaling.subjects, tuner.cli.scale; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
