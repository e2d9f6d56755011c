"""Steps of environments, counted inside a process whose libraries are stand-ins with the interfaces of real ones."""

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import tuner.count

INSIDE = Path(tuner.count.__file__).parent / "inside"
GYMNASIUM = """
    class SyncVectorEnv:
        def __init__(self, num_envs):
            self.num_envs = num_envs

        def step(self, actions):
            return [], [0.0] * self.num_envs, [], [], {}
"""
TIANSHOU = """
    class Rewards(list):
        @property
        def shape(self):
            return (len(self),)

    class BaseVectorEnv:
        env_num = 10

        def step(self, action, id=None):
            return [], Rewards([0.0] * len(action)), [], [], {}
"""
RSL_RL = """
    from abc import ABC, abstractmethod

    class VecEnv(ABC):
        @abstractmethod
        def step(self, actions): ...
"""
RLLIB = """
    class MetricsLogger:
        def aggregate(self, stats_dicts, *, key=None):
            return [key, *stats_dicts]
"""


def counted(folder: Path, module: str, library: str, script: str) -> list[str]:
    """Return what a script prints that imports a stand-in for `module`; `environments` are the counts."""
    file = folder.joinpath(*module.split(".")).with_suffix(".py")
    file.parent.mkdir(parents=True)
    file.write_text(dedent(library))
    whole = f"from {module} import *\nfrom tuner_inside.environments import environments\n{dedent(script)}"
    environment = os.environ | {"PYTHONPATH": f"{INSIDE}{os.pathsep}{folder}", "TUNER_COUNT": str(folder)}
    command = [sys.executable, "-c", whole]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.split()


def test_environments_of_an_evaluation_count_nothing_however_long_it_is(tmp_path: Path) -> None:
    script = """
        train, test = SyncVectorEnv(4), SyncVectorEnv(2)
        for _ in range(3):
            for _ in range(100):
                test.step([])
            for _ in range(5):
                train.step([])
            environments.after_step()
            environments.after_step()
        print(environments.training, environments.rollouts)
    """
    assert counted(tmp_path, "gymnasium.vector.sync_vector_env", GYMNASIUM, script) == ["60", "3"]


def test_some_environments_of_a_vector_step_alone(tmp_path: Path) -> None:
    script = """
        envs = BaseVectorEnv()
        envs.step([0] * 10)
        envs.step([0] * 3, id=[1, 2, 5])
        environments.after_step()
        print(environments.training)
    """
    assert counted(tmp_path, "tianshou.env.venvs", TIANSHOU, script) == ["13"]


def test_heirs_of_an_abstract_vector_are_counted(tmp_path: Path) -> None:
    script = """
        class CartPoles(VecEnv):
            num_envs = 64

            def step(self, actions):
                return {}, [0.0] * 64, [], {}

        class Normalised(CartPoles):
            def step(self, actions):
                return super().step(actions)

        envs = Normalised()
        envs.step([])
        envs.step([])
        environments.after_step()
        print(environments.training)
    """
    assert counted(tmp_path, "rsl_rl.env.vec_env", RSL_RL, script) == ["128"]


def test_environments_in_other_processes_report_their_steps_to_the_trainer(tmp_path: Path) -> None:
    script = """
        metrics = MetricsLogger()
        reports = [{"num_env_steps_sampled": 500}, {"num_env_steps_sampled": 512}]
        given = metrics.aggregate(reports, key="env_runners")
        metrics.aggregate(reports, key=("evaluation", "env_runners"))
        metrics.aggregate([{"loss": 0.5}], key="learners")
        environments.after_step()
        print(environments.training, given[0], len(given))
    """
    assert counted(tmp_path, "ray.rllib.utils.metrics.metrics_logger", RLLIB, script) == ["1012", "env_runners", "3"]
