"""rsl_rl under Hydra: PPO on many cart-poles in one tensor; settings are overrides, as `num_envs=64`.

python train_rsl_rl_hydra.py task=cartpole num_envs=64 agent.num_steps_per_env=24 agent.max_iterations=300

The library prints its table after each iteration. Hydra gives each run a folder of its own below `outputs`.
"""

from dataclasses import dataclass, field

import hydra
import torch
import truth_file
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from rsl_rl.env import VecEnv
from rsl_rl.runners import OnPolicyRunner
from tensordict import TensorDict


@dataclass
class Agent:
    """The agent of the task."""

    num_steps_per_env: int = 24
    max_iterations: int = 300
    num_mini_batches: int = 4
    num_learning_epochs: int = 5
    learning_rate: float = 1e-3


@dataclass
class Config:
    """All settings."""

    task: str = "cartpole"
    num_envs: int = 64
    device: str = "cuda:0" if torch.cuda.is_available() else "cpu"
    agent: Agent = field(default_factory=Agent)


ConfigStore.instance().store(name="train", node=Config)


class CartPoles(VecEnv):
    def __init__(self, num_envs, device):
        self.num_envs, self.num_actions, self.max_episode_length = num_envs, 1, 500
        self.device, self.cfg = device, {}
        self.state = torch.zeros(num_envs, 4, device=device)
        self.episode_length_buf = torch.zeros(num_envs, dtype=torch.long, device=device)

    def get_observations(self):
        return TensorDict({"policy": self.state.clone()}, batch_size=[self.num_envs])

    def step(self, actions):
        place, speed, angle, turn = self.state.unbind(-1)
        push = (10 * actions[:, 0].tanh() + 0.05 * turn**2 * angle.sin()) / 1.1
        spin = (9.8 * angle.sin() - angle.cos() * push) / (0.5 * (4 / 3 - 0.1 * angle.cos() ** 2 / 1.1))
        change = torch.stack([speed, push - 0.05 * spin * angle.cos() / 1.1, turn, spin], -1)
        self.state = self.state + 0.02 * change
        self.episode_length_buf += 1
        late = self.episode_length_buf >= self.max_episode_length
        done = (place.abs() > 2.4) | (angle.abs() > 0.21) | late
        self.state[done] = 0.1 * torch.rand(int(done.sum()), 4, device=self.device) - 0.05
        self.episode_length_buf[done] = 0
        return self.get_observations(), torch.ones(self.num_envs, device=self.device), done.long(), {"time_outs": late}


def network(**more):
    return {"class_name": "MLPModel", "hidden_dims": [128, 128], "activation": "elu", **more}


@hydra.main(version_base=None, config_name="train")
def main(cfg):
    actions = {"class_name": "GaussianDistribution", "init_std": 1.0, "std_type": "scalar"}
    settings = {
        "num_steps_per_env": cfg.agent.num_steps_per_env,
        "save_interval": 100,
        "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
        "actor": network(distribution_cfg=actions),
        "critic": network(),
        "algorithm": {
            "class_name": "PPO",
            "num_mini_batches": cfg.agent.num_mini_batches,
            "num_learning_epochs": cfg.agent.num_learning_epochs,
            "learning_rate": cfg.agent.learning_rate,
        },
    }
    folder = HydraConfig.get().runtime.output_dir
    runner = OnPolicyRunner(CartPoles(cfg.num_envs, cfg.device), settings, log_dir=folder, device=cfg.device)
    update = runner.alg.update

    def counted():
        losses = update()
        truth_file.step(cfg.num_envs * cfg.agent.num_steps_per_env)
        return losses

    runner.alg.update = counted
    runner.learn(cfg.agent.max_iterations)


if __name__ == "__main__":
    main()
