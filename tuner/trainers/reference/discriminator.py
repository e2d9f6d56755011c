"""The discriminator of amp and add: how much a sample of the policy looks like one of the motion clips."""

import math

import torch
from torch import Tensor
from torch.nn import functional

from tuner.trainers.reference.agent import AgentSettings
from tuner.trainers.reference.env import Step
from tuner.trainers.reference.learner import Loss, Samples
from tuner.trainers.reference.nets import mlp
from tuner.trainers.reference.robot import FEATURES

GRADIENT_PENALTY = 5.0
REWARD_SCALE = 2.0
MOST_REWARD = -math.log(1e-4)
"""At this value the discriminator is almost certain that it sees a clip."""


class Discriminator(Loss):
    """Distinguishes transitions of the policy from those of the clips, as amp does (Peng et al. 2021)."""

    inputs = 2 * FEATURES
    columns = ("shown", "wanted")
    compiles = False
    """The penalty differentiates a gradient, which torch.compile does not do."""

    def __init__(self, agent: AgentSettings) -> None:
        super().__init__()
        self.net = mlp(self.inputs, 1, agent)

    def evidence(self, step: Step) -> tuple[Tensor, Tensor]:
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

    def evidence(self, step: Step) -> tuple[Tensor, Tensor]:
        """Return the tracking error and its ideal: two tensors [num_envs, inputs]."""
        error = step.after - step.reference_after
        return error, torch.zeros_like(error)
