"""Collects samples, on the same device as the learning or on another."""

import copy
from typing import Protocol

import torch
from torch import Tensor

from tuner.trainers.reference.launch_settings import STEPS_PER_ITERATION, Kernels
from tuner.trainers.reference.methods import (
    ActorCritic,
    Discriminator,
    Networks,
    Numerics,
    Samples,
    Transfer,
    copy_over,
    numerics,
)
from tuner.trainers.reference.world import TrackingEnv

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


class Player(Protocol):
    """Plays one iteration after clips; `device` is where the clips must lie and where the samples will lie."""

    device: torch.device
    transfer: Transfer | None
    """The weights that were copied for the newest rollout; None where none are."""

    def play(self, clips: Tensor) -> Samples:
        """Return the samples of one iteration. They are valid until the next call."""
        ...


def player(asked: Kernels, networks: Networks, device: torch.device) -> Player:
    """Choose the player of a run on a rank's device."""
    if rollout_device(asked, device) != device:
        return BesidePlayer(networks)
    plain = PlainPlayer(networks, numerics(asked.precision, device))
    return GraphPlayer(plain) if asked.cuda_graphs else plain


def rollout_device(asked: Kernels, device: torch.device) -> torch.device:
    """Return the device of the rollout of a rank with this device."""
    return torch.device("cpu") if asked.rollout_device == "cpu" else device


class PlainPlayer:
    """Launches each operation of the rollout by itself."""

    transfer: Transfer | None = None

    def __init__(self, networks: Networks, formats: Numerics) -> None:
        self.device = formats.device
        self._networks, self._formats = networks, formats
        self._env = TrackingEnv(self.device)

    def play(self, clips: Tensor) -> Samples:
        """Return the samples of one iteration."""
        return collect(self._env, self._networks.policy, self._networks.discriminator, clips, self._formats)


class GraphPlayer:
    """Records all operations of a rollout once, and then replays them with a single launch.

    The recording reads its clips from one tensor and the weights where the optimiser changes them. It writes the
    samples to the same memory each time. The random numbers go on from replay to replay.
    """

    transfer: Transfer | None = None

    def __init__(self, plain: PlainPlayer) -> None:
        self.device = plain.device
        self._plain = plain
        self._recording: tuple[torch.cuda.CUDAGraph, Tensor, Samples] | None = None

    def play(self, clips: Tensor) -> Samples:
        """Return the samples of one iteration; all calls need clips of the same shape."""
        if self._recording is None:
            self._recording = self._record(clips)
        graph, read, samples = self._recording
        read.copy_(clips)
        graph.replay()
        return samples

    def _record(self, clips: Tensor) -> tuple[torch.cuda.CUDAGraph, Tensor, Samples]:
        """Play once without recording, so that libraries are loaded, and then record.

        Other threads use CUDA meanwhile, for example to pin clips, so only this thread's calls are restricted.
        """
        read = clips.clone()
        beside = torch.cuda.Stream(self.device)
        beside.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(beside):
            self._plain.play(read)
        torch.cuda.current_stream(self.device).wait_stream(beside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            samples = self._plain.play(read)
        return graph, read, samples


class BesidePlayer:
    """Plays on the CPU in fp32 with a copy of a GPU's networks, which it renews for each iteration."""

    def __init__(self, networks: Networks) -> None:
        self.device = torch.device("cpu")
        self._learnt = networks
        self._copy = copy.deepcopy(networks).to(self.device)
        self._plain = PlainPlayer(self._copy, Numerics(self.device))
        self.transfer: Transfer | None = None

    @torch.no_grad()
    def play(self, clips: Tensor) -> Samples:
        """Bring the weights from the GPU and return the samples of one iteration."""
        self.transfer = copy_over(zip(self._copy.parameters(), self._learnt.parameters(), strict=True))
        return self._plain.play(clips)
