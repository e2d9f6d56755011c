"""The parameters that study files share across trainers, and what a trainer may know of them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tuner.errors import TrainerError
from tuner.probe.protocols import Trainer
from tuner.study.cases import Case
from tuner.study.space import LADDER, VARIANT, Parameter, Value

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


@runtime_checkable
class Choosy(Protocol):
    """A trainer that knows of a value, whatever the case and the other parameters, that it cannot use it."""

    def check_value(self, parameter: str, value: Value) -> None:
        """Raise TrainerError saying what it takes instead."""
        ...


def check_values(trainer: Trainer, parameters: Iterable[Parameter]) -> None:
    """Raise TrainerError with every value that the trainer, or the tuner itself, cannot use."""
    refusals: dict[str, None] = {}
    for parameter in parameters:
        for value in parameter.values:
            try:
                _check_own(parameter.name, value)
                if isinstance(trainer, Choosy):
                    trainer.check_value(parameter.name, value)
            except TrainerError as refusal:
                refusals[str(refusal)] = None
    if refusals:
        raise TrainerError("\n  ".join([f"{len(refusals)} value(s) of the study's space cannot be used", *refusals]))


def _check_own(parameter: str, value: Value) -> None:
    if parameter in OWN and (not isinstance(value, int) or value < 1):
        raise TrainerError(f"{parameter} {value!r}: iterations, a whole number of at least 1")


@dataclass(frozen=True, kw_only=True, slots=True)
class LadderEnd:
    """The most environments per device that a trainer can run, however much the devices hold."""

    num_envs: int
    reason: str
    """What sets the number, and what to do for more."""


@runtime_checkable
class Bounded(Protocol):
    """A trainer that knows before any launch where the ladder of a case must end."""

    def ladder_end(self, case: Case) -> LadderEnd | None:
        """Say where it ends; None where no end is known, and where a file cannot be used: `plan` tells that."""
        ...


def ladder_end(trainer: Trainer, case: Case) -> LadderEnd | None:
    """Say where the ladder of a case must end; None where the trainer knows of no end."""
    return trainer.ladder_end(case) if isinstance(trainer, Bounded) else None
