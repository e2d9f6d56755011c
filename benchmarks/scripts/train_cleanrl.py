"""CleanRL: PPO in one file, as in its `ppo.py`, with tyro for the options, printed returns and a printed speed.

python train_cleanrl.py --num-envs 4 --num-steps 128 --total-timesteps 150000
"""

import time
from dataclasses import dataclass

import gymnasium
import numpy as np
import torch
import truth_file
import tyro
from torch import nn
from torch.distributions.categorical import Categorical


@dataclass
class Args:
    """The options."""

    env_id: str = "CartPole-v1"
    num_envs: int = 4
    """Environments that are simulated together."""
    num_steps: int = 128
    """Steps per environment and iteration."""
    num_minibatches: int = 4
    update_epochs: int = 4
    total_timesteps: int = 150_000
    learning_rate: float = 2.5e-4
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip_coef: float = 0.2
    cuda: bool = True


def mlp(inputs: int, outputs: int) -> nn.Module:
    """Return a small network."""
    return nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))


def advantages_of(
    rewards: torch.Tensor, values: torch.Tensor, dones: torch.Tensor, last: torch.Tensor, args: Args
) -> torch.Tensor:
    """Return the generalised advantage estimates of a rollout."""
    found, following = torch.zeros_like(rewards), torch.zeros_like(last)
    for step in reversed(range(len(rewards))):
        goes_on = 1.0 - dones[step]
        delta = rewards[step] + args.gamma * last * goes_on - values[step]
        following = delta + args.gamma * args.gae_lambda * goes_on * following
        found[step], last = following, values[step]
    return found


def main() -> None:
    """Train, and print the speed after each iteration."""
    args = tyro.cli(Args)
    device = torch.device("cuda" if args.cuda and torch.cuda.is_available() else "cpu")
    envs = gymnasium.make_vec(args.env_id, args.num_envs, vectorization_mode="sync")
    envs = gymnasium.wrappers.vector.RecordEpisodeStatistics(envs)
    inputs = int(np.prod(envs.single_observation_space.shape or ()))
    actor, critic = mlp(inputs, int(envs.single_action_space.n)).to(device), mlp(inputs, 1).to(device)  # type: ignore
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=args.learning_rate, eps=1e-5)
    batch_size = args.num_envs * args.num_steps
    seen = torch.as_tensor(envs.reset(seed=1)[0], dtype=torch.float32, device=device)
    global_step, began = 0, time.time()
    for _ in range(args.total_timesteps // batch_size):
        rollout: list[tuple[torch.Tensor, ...]] = []
        for _ in range(args.num_steps):
            with torch.no_grad():
                policy = Categorical(logits=actor(seen))
                action = policy.sample()
                value = critic(seen)[:, 0]
            after, reward, ended, cut, infos = envs.step(action.cpu().numpy())
            global_step += args.num_envs
            for place in np.flatnonzero(infos.get("_episode", ())):
                print(f"global_step={global_step}, episodic_return={infos['episode']['r'][place]}")
            done = torch.as_tensor(np.logical_or(ended, cut), dtype=torch.float32, device=device)
            reward = torch.as_tensor(reward, dtype=torch.float32, device=device)
            rollout.append((seen, action, policy.log_prob(action), value, reward, done))
            seen = torch.as_tensor(after, dtype=torch.float32, device=device)
        states, actions, logs, values, rewards, dones = (torch.stack(one) for one in zip(*rollout, strict=True))
        with torch.no_grad():
            advantages = advantages_of(rewards, values, dones, critic(seen)[:, 0], args)
        flat = [one.flatten(0, 1) for one in (states, actions, logs, advantages, advantages + values)]
        for _ in range(args.update_epochs):
            for chosen in torch.randperm(batch_size, device=device).chunk(args.num_minibatches):
                state, action, log, advantage, wanted = (one[chosen] for one in flat)
                policy = Categorical(logits=actor(state))
                ratio = (policy.log_prob(action) - log).exp()
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                clipped = ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)
                loss = -torch.min(ratio * advantage, clipped * advantage).mean() - 0.01 * policy.entropy().mean()
                loss = loss + 0.5 * (critic(state)[:, 0] - wanted).pow(2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        truth_file.step(batch_size)
        print("SPS:", int(global_step / (time.time() - began)), flush=True)


if __name__ == "__main__":
    main()
