"""The parameters that study files share across trainers."""

from typing import Protocol, runtime_checkable

from tuner.probe.protocols import Trainer
from tuner.study.space import LADDER, VARIANT

STANDARD = (LADDER, VARIANT, "update_epochs", "batch_size", "num_workers", "prefetch_factor")
"""Every trainer accepts each of these or declines it with a reason."""

OWN = frozenset({"pruner_patience"})
"""Read by the tuner itself, whatever the trainer."""

LEARNING = frozenset({VARIANT, "update_epochs", "batch_size"})
"""Standard parameters that change what is learnt: the network, the updates per sample or the minibatch.

`num_envs` changes the batch, but it does so in every config, and configs are compared with the default of their rung.
"""


@runtime_checkable
class Discerning(Protocol):
    """A trainer that tells what changes learning from what changes mere throughput."""

    @property
    def learning(self) -> frozenset[str]:
        """The parameters, among those it accepts, that change what is learnt."""
        ...


def learning(trainer: Trainer) -> frozenset[str]:
    """Give the parameters that change what is learnt: what the trainer says, else the usual ones."""
    return trainer.learning if isinstance(trainer, Discerning) else LEARNING & trainer.accepts
