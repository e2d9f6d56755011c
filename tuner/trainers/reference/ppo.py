"""Proximal policy optimisation: what the policy minimises (Schulman et al. 2017)."""

import torch
from torch import Tensor

from tuner.trainers.reference.learner import Loss, Samples
from tuner.trainers.reference.nets import ActorCritic

CLIP_RATIO = 0.2


class PolicyLoss(Loss):
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
