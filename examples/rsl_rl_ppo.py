"""rsl_rl: PPO on many carts that each balance a pole, simulated together as one batch of tensors.

On a CPU rsl_rl runs one process. On GPUs torchrun starts one for each:

python examples/rsl_rl_ppo.py --num_envs 256
torchrun --nproc-per-node 2 examples/rsl_rl_ppo.py --num_envs 4096
"""

import argparse
import os
import tempfile

import torch
from rsl_rl.env import VecEnv
from rsl_rl.runners import OnPolicyRunner
from tensordict import TensorDict

ACTIONS = {"class_name": "GaussianDistribution", "init_std": 1.0, "std_type": "scalar"}
STEP_S, GRAVITY, POLE_M, CART_KG, POLE_KG = 0.02, 9.8, 0.5, 1.0, 0.1


class Carts(VecEnv):
    """Cart-poles with the physics of Barto, Sutton and Anderson (1983); the force on the cart is the action."""

    def __init__(self, num_envs: int, device: str) -> None:
        self.num_envs, self.num_actions, self.max_episode_length = num_envs, 1, 500
        self.device, self.cfg = device, {}
        self.state = self._start(num_envs)
        self.episode_length_buf = torch.zeros(num_envs, dtype=torch.long, device=device)

    def _start(self, count: int) -> torch.Tensor:
        return 0.1 * torch.rand(count, 4, device=self.device) - 0.05

    def get_observations(self) -> TensorDict:
        """Return place and speed of the carts and the poles."""
        return TensorDict({"policy": self.state.clone()}, batch_size=[self.num_envs])

    def step(self, actions: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict]:
        """Move all carts; those that fall or run out of time start again."""
        _, speed, angle, turn = self.state.unbind(-1)
        force = 10.0 * actions[:, 0].tanh()
        push = (force + POLE_KG * POLE_M * turn**2 * angle.sin()) / (CART_KG + POLE_KG)
        inertia = POLE_M * (4 / 3 - POLE_KG * angle.cos() ** 2 / (CART_KG + POLE_KG))
        spin = (GRAVITY * angle.sin() - angle.cos() * push) / inertia
        pull = push - POLE_KG * POLE_M * spin * angle.cos() / (CART_KG + POLE_KG)
        change = torch.stack([speed, pull, turn, spin], dim=-1)
        self.state = self.state + STEP_S * change
        self.episode_length_buf += 1
        late = self.episode_length_buf >= self.max_episode_length
        done = (self.state[:, 0].abs() > 2.4) | (self.state[:, 2].abs() > 0.21) | late
        again = done.nonzero()[:, 0]
        self.state[again] = self._start(len(again))
        self.episode_length_buf[again] = 0
        reward = torch.ones(self.num_envs, device=self.device)
        return self.get_observations(), reward, done.long(), {"time_outs": late.float()}


def network(**more: object) -> dict:
    """Return the configuration of a network."""
    return {"class_name": "MLPModel", "hidden_dims": [256, 128], "activation": "elu", **more}


def main() -> None:
    """Train; rsl_rl prints its own table after each iteration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num_envs", type=int, default=256, help="environments per rank")
    parser.add_argument("--num_steps", type=int, default=24, help="steps per environment and iteration")
    parser.add_argument("--num_mini_batches", type=int, default=4)
    parser.add_argument("--max_iterations", type=int, default=100_000)
    args = parser.parse_args()
    device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"
    settings = {
        "num_steps_per_env": args.num_steps,
        "save_interval": 1_000_000,
        "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
        "actor": network(distribution_cfg=ACTIONS),
        "critic": network(),
        "algorithm": {"class_name": "PPO", "num_mini_batches": args.num_mini_batches, "num_learning_epochs": 5},
    }
    with tempfile.TemporaryDirectory() as folder:
        runner = OnPolicyRunner(Carts(args.num_envs, device), settings, log_dir=folder, device=device)
        runner.learn(args.max_iterations)


if __name__ == "__main__":
    main()
