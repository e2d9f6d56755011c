"""The trainers there are, by the name that study files use."""

from collections.abc import Callable, Iterable, Mapping

from tuner.errors import TrainerError
from tuner.probe.protocols import Trainer
from tuner.study.spec import TrainerSpec
from tuner.trainers.command import LAUNCH_FACTS, CommandTrainer
from tuner.trainers.mimickit.trainer import MimicKitTrainer
from tuner.trainers.parameters import OWN, STANDARD
from tuner.trainers.reference.adapter import ReferenceTrainer

TRAINERS: Mapping[str, Callable[[TrainerSpec], Trainer]] = {
    "mimickit": MimicKitTrainer,
    "command": CommandTrainer,
    "reference": ReferenceTrainer,
}


def open_trainer(spec: TrainerSpec) -> Trainer:
    """Give the trainer that a study names, with its options checked. Raises TrainerError with the names there are."""
    if spec.name not in TRAINERS:
        raise TrainerError(f"no trainer is called {spec.name!r}; known: {', '.join(TRAINERS)}")
    return TRAINERS[spec.name](spec)


def split_parameters(trainer: Trainer, names: Iterable[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Tell which of a study's parameters the trainer varies, in the study's order, and which it declines, and why.

    Raises TrainerError for parameters that the trainer does not know, and for those that it asks for (a command's
    placeholders) and the study does not know.
    """
    wanted = tuple(names)
    known = trainer.accepts | OWN
    declined = {name: trainer.declines[name] for name in wanted if name in trainer.declines and name not in known}
    unknown = [name for name in wanted if name not in known | declined.keys()]
    if unknown:
        raise TrainerError(
            f"{trainer.name} has no parameter {', '.join(unknown)}; it takes {', '.join(sorted(known))}. "
            "Take it out of the study's space"
        )
    unfilled = sorted(trainer.accepts - {*wanted, *STANDARD, *OWN})
    if unfilled:
        placeholders = (*dict.fromkeys((*wanted, *STANDARD)), *sorted(LAUNCH_FACTS))
        raise TrainerError(
            f"{trainer.name} asks for {', '.join(unfilled)}, which is no parameter of the study's space; put it there, "
            f"or name one of: {', '.join(placeholders)}"
        )
    return tuple(name for name in wanted if name in known), declined
