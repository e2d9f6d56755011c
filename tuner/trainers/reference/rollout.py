"""The rollout: the policy acts in every environment for the length of a clip, and its samples are gathered."""

import torch
from torch import Tensor

from tuner.trainers.reference.agent import STEPS_PER_ITERATION
from tuner.trainers.reference.discriminator import Discriminator
from tuner.trainers.reference.env import TrackingEnv
from tuner.trainers.reference.learner import Samples
from tuner.trainers.reference.nets import ActorCritic
from tuner.trainers.reference.numerics import Numerics

DISCOUNT = 0.9
"""Looks about ten control steps ahead, the time in which a joint reaches its target."""

TD_LAMBDA = 0.95


@torch.no_grad()
def collect(
    env: TrackingEnv,
    policy: ActorCritic,
    discriminator: Discriminator | None,
    clips: Tensor,
    formats: Numerics | None = None,
) -> Samples:
    """Play one iteration after `clips` and return its STEPS_PER_ITERATION · num_envs samples.

    `formats` are the number formats of the networks' layers; None for fp32. The environment always computes in fp32.
    Columns: `observation target log_likelihood value reward tracking alive outcome advantage` and, where there is a
    discriminator, `shown` and `wanted`.
    """
    formats = formats or Numerics(clips.device)
    env.follow(clips)
    with formats.layers():
        moments = [_act(env, policy, discriminator, formats) for _ in range(STEPS_PER_ITERATION)]
        last_value = policy.value(env.observe())
    columns = {name: torch.stack([moment[name] for moment in moments]) for name in moments[0]}
    columns["outcome"] = lambda_returns(columns["reward"], columns["value"], columns["alive"], last_value)
    advantage = columns["outcome"] - columns["value"]
    columns["advantage"] = (advantage - advantage.mean()) / (advantage.std() + 1e-5)
    return {name: column.flatten(0, 1) for name, column in columns.items()}


def _act(env: TrackingEnv, policy: ActorCritic, discriminator: Discriminator | None, formats: Numerics) -> Samples:
    observation = env.observe()
    target, log_likelihood = policy.act(observation)
    with formats.exact():
        step = env.step(target)
    moment = {
        "observation": observation,
        "target": target,
        "log_likelihood": log_likelihood,
        "value": policy.value(observation),
        "reward": step.tracking_reward,
        "tracking": step.tracking_reward,
        "alive": (~step.failed).float(),
    }
    if discriminator is None:
        return moment
    shown, wanted = discriminator.evidence(step)
    return {**moment, "reward": discriminator.reward(shown), "shown": shown, "wanted": wanted}


def lambda_returns(reward: Tensor, value: Tensor, alive: Tensor, last_value: Tensor) -> Tensor:
    """Return the TD(λ) return of each step, [steps, num_envs]. Minus the value, it is the GAE advantage.

    `alive` is 0 where a step ended the episode, `last_value` the value after the last step, [num_envs].
    Source: Sutton and Barto, Reinforcement Learning, second edition, section 12.1; Schulman et al. 2016.
    """
    outcomes: list[Tensor] = []
    outcome = following = last_value
    for step in reversed(range(len(reward))):
        outcome = reward[step] + DISCOUNT * alive[step] * torch.lerp(following, outcome, TD_LAMBDA)
        following = value[step]
        outcomes.append(outcome)
    return torch.stack(outcomes[::-1])
