"""The methods of training: the networks, PPO, and the discriminator of AMP and ADD."""

import itertools
import math
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from tuner.trainers.reference.launch_settings import AgentSettings, Method
from tuner.trainers.reference.learner import Learner, NetworkLoss, Numerics, Samples
from tuner.trainers.reference.world import FEATURES, JOINTS, OBSERVATION, ControlStep

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


CLIP_RATIO = 0.2


class PolicyLoss(NetworkLoss):
    """The clipped surrogate of the actor and the squared error of the critic."""

    columns = ("observation", "target", "log_likelihood", "advantage", "outcome")

    def __init__(self, policy: ActorCritic) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, samples: Samples) -> Tensor:
        """Return the loss of a minibatch, a scalar."""
        log_likelihood = self.policy.log_likelihood(samples["observation"], samples["target"])
        ratio = torch.exp(log_likelihood - samples["log_likelihood"])
        surprise = self.policy.value(samples["observation"]) - samples["outcome"]
        return clipped_loss(ratio, samples["advantage"]) + surprise.square().mean()


def clipped_loss(ratio: Tensor, advantage: Tensor) -> Tensor:
    """Return the clipped surrogate loss, a scalar (Schulman et al. 2017, equation 7)."""
    clipped = ratio.clamp(1 - CLIP_RATIO, 1 + CLIP_RATIO)
    return -torch.minimum(ratio * advantage, clipped * advantage).mean()


GRADIENT_PENALTY = 5.0
REWARD_SCALE = 2.0
MOST_REWARD = -math.log(1e-4)
"""At this value the discriminator is almost certain that it sees a clip."""


class Discriminator(NetworkLoss):
    """Distinguishes transitions of the policy from those of the clips, as amp does (Peng et al. 2021)."""

    inputs = 2 * FEATURES
    columns = ("shown", "wanted")
    compiles = False
    """The penalty differentiates a gradient, which torch.compile does not do."""

    def __init__(self, agent: AgentSettings) -> None:
        super().__init__()
        self.net = mlp(self.inputs, 1, agent)

    def evidence(self, step: ControlStep) -> tuple[Tensor, Tensor]:
        """Return what the policy shows and what it should show: two tensors [num_envs, inputs]."""
        shown = torch.cat((step.before, step.after), dim=-1)
        return shown, torch.cat((step.reference_before, step.reference_after), dim=-1)

    def reward(self, shown: Tensor) -> Tensor:
        """Return the reward -log(1 - D), [num_envs]: more for what looks like a clip."""
        return REWARD_SCALE * functional.softplus(self.net(shown).squeeze(-1)).clamp(max=MOST_REWARD)

    def forward(self, samples: Samples) -> Tensor:
        """Return the cross-entropy of the classification, with a penalty on steep gradients."""
        evidence = torch.cat((samples["shown"], samples["wanted"])).requires_grad_()
        logits = self.net(evidence).squeeze(-1)
        labels = torch.zeros_like(logits)
        labels[len(samples["shown"]) :] = 1
        (slope,) = torch.autograd.grad(logits.sum(), evidence, create_graph=True)
        penalty = GRADIENT_PENALTY * slope.square().sum(dim=-1).mean()
        return functional.binary_cross_entropy_with_logits(logits, labels) + penalty


class DifferenceDiscriminator(Discriminator):
    """Distinguishes the policy's tracking error from an error of zero, as add does (Zhang et al. 2025)."""

    inputs = FEATURES

    def evidence(self, step: ControlStep) -> tuple[Tensor, Tensor]:
        """Return the tracking error and its ideal: two tensors [num_envs, inputs]."""
        error = step.after - step.reference_after
        return error, torch.zeros_like(error)


DISCRIMINATORS = {"add": DifferenceDiscriminator, "amp": Discriminator}
"""Method → its discriminator; deepmimic has none."""

DISCRIMINATOR_EPOCHS = 2
"""The epochs of the discriminator in one update, whatever those of the policy are, as in MimicKit's agents."""


class Networks(nn.Module):
    """All networks of a method."""

    def __init__(self, method: Method, agent: AgentSettings) -> None:
        super().__init__()
        kind = DISCRIMINATORS.get(method)
        self.policy = ActorCritic(agent)
        self.discriminator = None if kind is None else kind(agent)

    def learners(
        self, *, update_epochs: int, minibatch: int, formats: Numerics, compiled: bool = False
    ) -> list[Learner]:
        """Return the learners of the policy and of the discriminator, each joined with its copies on other ranks."""
        learner = partial(
            Learner, minibatch=minibatch, wrap=DistributedDataParallel, formats=formats, compiled=compiled
        )
        learners = [learner(PolicyLoss(self.policy), epochs=update_epochs)]
        if self.discriminator is not None:
            learners.append(learner(self.discriminator, epochs=DISCRIMINATOR_EPOCHS))
        return learners
