"""Proximal policy optimisation (Schulman et al. 2017), with the discriminator trained beside it."""

import torch
from torch import Tensor, nn

from tuner.trainers.reference.agent import AgentSettings, Method
from tuner.trainers.reference.discriminator import DifferenceDiscriminator, Discriminator
from tuner.trainers.reference.nets import ActorCritic
from tuner.trainers.reference.rollout import Samples

CLIP_RATIO = 0.2
LEARNING_RATE = 5e-4

DISCRIMINATORS = {"add": DifferenceDiscriminator, "amp": Discriminator}


class Objective(nn.Module):
    """All networks of a method, and the one loss that trains them: one backward pass, one reduction over ranks."""

    def __init__(self, method: Method, agent: AgentSettings) -> None:
        super().__init__()
        self.policy = ActorCritic(agent)
        self.discriminator: Discriminator | None = DISCRIMINATORS[method](agent) if method in DISCRIMINATORS else None

    def forward(self, samples: Samples) -> Tensor:
        """Give the loss of a minibatch, a scalar; it needs the column `advantage` beside those of a rollout."""
        log_likelihood = self.policy.log_likelihood(samples["observation"], samples["target"])
        ratio = torch.exp(log_likelihood - samples["log_likelihood"])
        loss = clipped_loss(ratio, samples["advantage"])
        loss = loss + (self.policy.value(samples["observation"]) - samples["outcome"]).square().mean()
        if self.discriminator is not None:
            half = len(ratio) // 2  # of the policy and of the clips: as many samples as the policy learns from
            loss = loss + self.discriminator.loss(samples["shown"][:half], samples["wanted"][half:])
        return loss


def clipped_loss(ratio: Tensor, advantage: Tensor) -> Tensor:
    """Give the clipped surrogate loss, a scalar (Schulman et al. 2017, equation 7)."""
    clipped = ratio.clamp(1 - CLIP_RATIO, 1 + CLIP_RATIO)
    return -torch.minimum(ratio * advantage, clipped * advantage).mean()


class Learner:
    """Improves an objective, bare or wrapped for several ranks, on one iteration's samples at a time."""

    def __init__(self, objective: nn.Module, *, epochs: int, minibatch: int) -> None:
        self._objective = objective
        self._optimiser = torch.optim.Adam(objective.parameters(), lr=LEARNING_RATE, fused=True)
        self._epochs = epochs
        self._minibatch = minibatch

    def update(self, samples: Samples) -> Tensor:
        """Go over the samples for all epochs, in minibatches drawn anew in each; give the last loss."""
        advantage = samples["outcome"] - samples["value"]
        samples = {**samples, "advantage": (advantage - advantage.mean()) / (advantage.std() + 1e-5)}
        loss = torch.zeros(())
        for _ in range(self._epochs):
            for rows in torch.randperm(len(advantage), device=advantage.device).split(self._minibatch):
                loss = self._objective({name: column.index_select(0, rows) for name, column in samples.items()})
                self._optimiser.zero_grad()
                loss.backward()
                self._optimiser.step()
        return loss.detach()
