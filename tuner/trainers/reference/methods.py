"""The three methods: which networks each method learns, and how."""

from functools import partial

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tuner.trainers.reference.agent import AgentSettings, Method
from tuner.trainers.reference.discriminator import DifferenceDiscriminator, Discriminator
from tuner.trainers.reference.learner import Learner
from tuner.trainers.reference.nets import ActorCritic
from tuner.trainers.reference.numerics import Numerics
from tuner.trainers.reference.ppo import PolicyLoss

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
