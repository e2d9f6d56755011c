"""The example `examples/session`, unchanged: a session of two ranks through the command trainer."""

import shutil
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from tests_sessions import follow, served

import tuner.progress
from tuner.study.space import Config
from tuner.study.spec import StudySpec
from tuner.trainers.command import CommandTrainer

pytestmark = [pytest.mark.early, pytest.mark.trainers]

EXAMPLE = Path(__file__).parents[2] / "examples/session"


@pytest.fixture
def study(tmp_path: Path) -> StudySpec:
    shutil.copy(EXAMPLE / "train.py", tmp_path)
    shutil.copy(tuner.progress.__file__, tmp_path)
    spec = StudySpec.model_validate(YAML(typ="safe").load(EXAMPLE / "widths.yaml"))
    return spec.model_copy(update={"trainer": spec.trainer.model_copy(update={"root": str(tmp_path)})})


def test_it_serves_every_config_of_a_rung(study: StudySpec, tmp_path: Path) -> None:
    smallest: list[Config] = [config for config in study.build_space().configs() if config["num_envs"] == 1024]
    with served(CommandTrainer(study.trainer), "command", tmp_path / "runs") as serving:
        codes = [serving.run(config, iterations=2) for config in smallest]
        endless = serving.ask(smallest[0], iterations=10**6)
        follow(endless, until=3)
        codes += [endless.release(), serving.run(smallest[0], iterations=1)]
        *runs, rest = serving.told()
    assert codes == [0, 0, 0, 0]
    assert rest == []
    reached = [{one["rank"]: (one["iteration"], one["samples"]) for one in run} for run in runs]
    assert [set(run.values()) for run in reached[:2]] == [{(1, 2048)}, {(1, 2048)}]
    assert len(set(reached[2].values())) == 1
    assert reached[3] == {0: (0, 1024), 1: (0, 1024)}
