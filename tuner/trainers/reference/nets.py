"""The networks: actor, critic and discriminator, fully connected."""

import itertools

import torch
from torch import Tensor, nn

from tuner.trainers.reference.agent import AgentSettings
from tuner.trainers.reference.env import OBSERVATION
from tuner.trainers.reference.robot import JOINTS

ACTION_STD_RAD = 0.2


class Mlp(nn.Sequential):
    """Layers of which the last one computes in fp32, whatever format the others compute in.

    A bf16 number has 8 bits. Rounded to them, the mean of an action would change the ratio of two policies by percents.
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the name that torch gives it
        """Return the outputs of a batch in fp32, [batch, inputs] → [batch, outputs]."""
        *layers, last = self
        hidden = input
        for layer in layers:
            hidden = layer(hidden)
        with torch.autocast(hidden.device.type, enabled=False):
            return last(hidden.float())


def mlp(inputs: int, outputs: int, agent: AgentSettings) -> Mlp:
    """Build a network with the agent's hidden layers, [batch, inputs] → [batch, outputs]."""
    sizes = (inputs, *(agent.hidden_units,) * agent.hidden_layers)
    hidden = [layer for size, after in itertools.pairwise(sizes) for layer in (nn.Linear(size, after), nn.ReLU())]
    return Mlp(*hidden, nn.Linear(sizes[-1], outputs))


class ActorCritic(nn.Module):
    """A Gaussian policy of fixed standard deviation over joint targets, and a value of observations."""

    def __init__(self, agent: AgentSettings) -> None:
        super().__init__()
        self.actor = mlp(OBSERVATION, JOINTS, agent)
        self.critic = mlp(OBSERVATION, 1, agent)

    def act(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Draw joint targets in rad, [num_envs, JOINTS], and return them with their log-likelihood, [num_envs]."""
        mean = self.actor(observation)
        target = mean + ACTION_STD_RAD * torch.randn_like(mean)
        return target, _log_likelihood(target, mean)

    def log_likelihood(self, observation: Tensor, target: Tensor) -> Tensor:
        """Return the log-likelihood that the policy chooses `target`, up to a constant, [batch]."""
        return _log_likelihood(target, self.actor(observation))

    def value(self, observation: Tensor) -> Tensor:
        """Estimate the return from each observation, [batch]."""
        return self.critic(observation).squeeze(-1)


def _log_likelihood(target: Tensor, mean: Tensor) -> Tensor:
    """Leave out the Gaussian's normalisation: it is constant here and cancels in the ratio of two policies."""
    return -0.5 * ((target - mean) / ACTION_STD_RAD).square().sum(dim=-1)
