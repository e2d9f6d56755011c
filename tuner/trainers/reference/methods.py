"""The methods of training: the networks, PPO, and the discriminator of AMP and ADD."""

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from tuner.trainers.reference.launch_settings import Method
from tuner.trainers.reference.world import FEATURES, JOINTS, OBSERVATION, ControlStep

Samples = dict[str, Tensor]
"""Columns of equal length, one sample per row."""


class NetworkLoss(nn.Module):
    """A network together with what it minimises: `forward(samples)` returns the loss of a minibatch, a scalar."""

    columns: tuple[str, ...]
    """The columns of the samples that it reads."""


class Learner:
    """Trains one network by minimising its loss, together with the copies of the network on other ranks."""

    def __init__(
        self,
        loss: NetworkLoss,
        *,
        epochs: int,
        minibatch: int,
        wrap: Callable[[NetworkLoss], nn.Module],
    ) -> None:
        """Train one network, together with its copies on other ranks.

        Args:
            loss: the network with its loss.
            epochs: how often an update uses each sample.
            minibatch: the samples of a step on this rank.
            wrap: joins the network with its copies on other ranks, as DistributedDataParallel does.
        """
        self._columns = loss.columns
        self._loss = wrap(loss)
        self._optimizer = torch.optim.Adam(loss.parameters(), lr=5e-4, fused=True)
        self._epochs = epochs
        self._minibatch = minibatch

    def update(self, samples: Samples) -> Tensor:
        """Train on the samples for all epochs, in minibatches drawn anew in each epoch, and return the last loss."""
        columns = {name: samples[name] for name in self._columns}
        any_column = columns[self._columns[0]]
        loss = torch.zeros(())
        for _ in range(self._epochs):
            for rows in torch.randperm(len(any_column), device=any_column.device).split(self._minibatch):
                batch = {name: column.index_select(0, rows) for name, column in columns.items()}
                loss = self._loss(batch)
                self._optimizer.zero_grad()
                loss.backward()
                self._optimizer.step()
        return loss.detach()


def mlp(inputs: int, outputs: int, hidden_sizes: Sequence[int]) -> nn.Sequential:
    """Return layers with hidden ones of these sizes, [batch, inputs] → [batch, outputs]."""
    sizes = (inputs, *hidden_sizes)
    hidden: list[nn.Module] = []
    for size, next_size in itertools.pairwise(sizes):
        hidden += [nn.Linear(size, next_size), nn.ReLU()]
    return nn.Sequential(*hidden, nn.Linear(sizes[-1], outputs))


class ActorCritic(nn.Module):
    """A Gaussian policy of fixed standard deviation over joint targets, and a value of observations."""

    std_rad = 0.2
    """The standard deviation of a joint target."""

    def __init__(self, hidden_sizes: Sequence[int]) -> None:
        super().__init__()
        self.actor = mlp(OBSERVATION, JOINTS, hidden_sizes)
        self.critic = mlp(OBSERVATION, 1, hidden_sizes)

    def act(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Draw joint targets in rad, [num_envs, JOINTS], and return them with their log-likelihood, [num_envs]."""
        mean = self.actor(observation)
        target = mean + self.std_rad * torch.randn_like(mean)
        return target, self._log_likelihood(target, mean)

    def log_likelihood(self, observation: Tensor, target: Tensor) -> Tensor:
        """Return the log-likelihood that the policy chooses `target`, up to a constant, [batch]."""
        return self._log_likelihood(target, self.actor(observation))

    def value(self, observation: Tensor) -> Tensor:
        """Return the estimated return from each observation, [batch]."""
        return self.critic(observation).squeeze(-1)

    def _log_likelihood(self, target: Tensor, mean: Tensor) -> Tensor:
        """Return the log-likelihood of a target, without the normalisation, which cancels in a ratio of policies."""
        return -0.5 * ((target - mean) / self.std_rad).square().sum(dim=-1)


class PolicyLoss(NetworkLoss):
    """The clipped surrogate of the actor and the squared error of the critic."""

    columns = ("observation", "target", "log_likelihood", "advantage", "return")

    def __init__(self, policy: ActorCritic) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, samples: Samples) -> Tensor:
        """Return the loss of a minibatch, a scalar."""
        log_likelihood = self.policy.log_likelihood(samples["observation"], samples["target"])
        ratio = torch.exp(log_likelihood - samples["log_likelihood"])  # of the policy now to that of the rollout
        value_error = self.policy.value(samples["observation"]) - samples["return"]
        return clipped_loss(ratio, samples["advantage"]) + value_error.square().mean()


def clipped_loss(ratio: Tensor, advantage: Tensor) -> Tensor:
    """Return the clipped surrogate loss with an epsilon of 0.2, a scalar (Schulman et al. 2017, equation 7)."""
    clipped = ratio.clamp(0.8, 1.2)
    return -torch.minimum(ratio * advantage, clipped * advantage).mean()


class Discriminator(NetworkLoss):
    """Distinguishes transitions of the policy from those of the clips, as amp does (Peng et al. 2021)."""

    inputs = 2 * FEATURES
    columns = ("fake", "real")
    gradient_penalty = 5.0
    reward_scale = 2.0
    most_reward = -math.log(1e-4)
    """At this value the discriminator is almost certain that it sees a clip."""

    def __init__(self, hidden_sizes: Sequence[int]) -> None:
        super().__init__()
        self.net = mlp(self.inputs, 1, hidden_sizes)

    def examples(self, step: ControlStep) -> tuple[Tensor, Tensor]:
        """Return the fake and the real examples: the policy's transitions, and the clips'; two [num_envs, inputs]."""
        fake = torch.cat((step.before, step.after), dim=-1)
        return fake, torch.cat((step.reference_before, step.reference_after), dim=-1)

    def reward(self, fake: Tensor) -> Tensor:
        """Return the reward -log(1 - D), [num_envs]: more for what looks like a clip.

        The logit of D is the network's output, and -log(1 - sigmoid(x)) is softplus(x).
        """
        return self.reward_scale * functional.softplus(self.net(fake).squeeze(-1)).clamp(max=self.most_reward)

    def forward(self, samples: Samples) -> Tensor:
        """Return the cross-entropy of the classification, with a penalty on steep gradients."""
        examples = torch.cat((samples["fake"], samples["real"])).requires_grad_()
        logits = self.net(examples).squeeze(-1)
        labels = torch.zeros_like(logits)
        labels[len(samples["fake"]) :] = 1  # real
        (slope,) = torch.autograd.grad(logits.sum(), examples, create_graph=True)
        penalty = self.gradient_penalty * slope.square().sum(dim=-1).mean()
        return functional.binary_cross_entropy_with_logits(logits, labels) + penalty


class DifferenceDiscriminator(Discriminator):
    """Distinguishes the policy's tracking error from an error of zero, as add does (Zhang et al. 2025)."""

    inputs = FEATURES

    def examples(self, step: ControlStep) -> tuple[Tensor, Tensor]:
        """Return the fake and the real examples: the policy's tracking error, and zero; two [num_envs, inputs]."""
        error = step.after - step.reference_after
        return error, torch.zeros_like(error)


class Networks(nn.Module):
    """All networks of a method; deepmimic has no discriminator."""

    def __init__(self, method: Method, hidden_sizes: Sequence[int]) -> None:
        """Make the networks of a method, with hidden layers of these sizes."""
        super().__init__()
        self.policy = ActorCritic(hidden_sizes)
        self.discriminator = None
        if method == "add":
            self.discriminator = DifferenceDiscriminator(hidden_sizes)
        elif method == "amp":
            self.discriminator = Discriminator(hidden_sizes)

    def learners(self, *, update_epochs: int, minibatch: int) -> list[Learner]:
        """Return the learners of the policy and of the discriminator, each joined with its copies on other ranks.

        The discriminator has two epochs in an update, whatever those of the policy are, as in MimicKit's agents.
        """
        learner = partial(Learner, minibatch=minibatch, wrap=DistributedDataParallel)
        learners = [learner(PolicyLoss(self.policy), epochs=update_epochs)]
        if self.discriminator is not None:
            learners.append(learner(self.discriminator, epochs=2))
        return learners
