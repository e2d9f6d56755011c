"""The trainers by name, and checks whether a study's parameters and values fit its trainer."""

import inspect
import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path

from tuner.errors import TrainerError
from tuner.probe import number_of
from tuner.study import NODES, PATIENCE, Parameter, StudySpec, TrainerSpec
from tuner.trainers.base import STANDARD, Trainer
from tuner.trainers.command import CommandTrainer
from tuner.trainers.command_options import LAUNCH_FACTS
from tuner.trainers.mimickit import MimicKitTrainer
from tuner.trainers.reference.reference_trainer import ReferenceTrainer

TUNER_PARAMETERS = frozenset({NODES, PATIENCE})
"""The parameters that the tuner itself reads, whatever the trainer."""


def declined_parameters(trainer: Trainer, names: Iterable[str]) -> dict[str, str]:
    """Return the standard parameters of a study that its trainer does not vary → why not, in words.

    Args:
        trainer: The trainer.
        names: The parameters of the study.

    Raises:
        TrainerError: The trainer does not know one of them, or needs another, such as for a placeholder of its command.
    """
    names = tuple(names)
    accepted = trainer.accepts | TUNER_PARAMETERS
    refused = {name: trainer.declines[name] for name in names if name in trainer.declines and name not in accepted}
    unknown = [name for name in names if name not in accepted | refused.keys()]
    if unknown:
        raise TrainerError(
            f"{trainer.name} has no parameter {', '.join(unknown)}; it takes {', '.join(sorted(accepted))}. "
            "Take it out of the study's space"
        )
    unfilled = sorted(trainer.needs - {*names, *TUNER_PARAMETERS})
    if unfilled:
        placeholders = (*dict.fromkeys((*names, *STANDARD)), *sorted(LAUNCH_FACTS))
        raise TrainerError(
            f"{trainer.name} asks for {', '.join(unfilled)}, which is no parameter of the study's space; put it there, "
            f"or name one of: {', '.join(placeholders)}"
        )
    return refused


def not_searched(spec: StudySpec, trainer: Trainer) -> dict[str, str]:
    """Return the study's parameters that have no effect → why, in words: a condition, the pruner or the trainer.

    Raises TrainerError for a parameter that this trainer does not know.
    """
    refused = declined_parameters(trainer, spec.space)
    unmet = spec.build_space().without_effect
    reasons = {name: f"no config has {condition}" for name, condition in unmet.items()}
    if PATIENCE in spec.space and spec.pruner.name == "none":
        reasons[PATIENCE] = "no probe is pruned"
    return reasons | refused


def check_values(trainer: Trainer, parameters: Iterable[Parameter]) -> None:
    """Raise TrainerError with all values of the parameters that the trainer, or the tuner itself, cannot use."""
    refusals: dict[str, None] = {}  # the messages, each once and in order
    for parameter in parameters:
        for value in parameter.values:
            try:
                if parameter.name not in TUNER_PARAMETERS:
                    trainer.check_value(parameter.name, value)
                elif not isinstance(value, int) or value < 1:
                    raise TrainerError(f"{parameter.name} {value!r}: iterations, a whole number of at least 1")
            except TrainerError as refusal:
                refusals[str(refusal)] = None
    if refusals:
        raise TrainerError(
            "\n  ".join([f"{number_of(len(refusals), 'value')} of the study's space cannot be used", *refusals])
        )


def check_program(trainer: Trainer) -> None:
    """Raise TrainerError if the program that a trainer would start does not exist."""
    if program := trainer.missing_program():
        raise TrainerError(
            f"there is no program {program!r}; correct trainer.python or trainer.options of the study file, or the "
            "environment variable that they read"
        )


TRAINERS: Mapping[str, type[Trainer]] = {
    "mimickit": MimicKitTrainer,
    "command": CommandTrainer,
    "reference": ReferenceTrainer,
}
"""The built-in trainers, by the name that study files use."""


def open_trainer(spec: TrainerSpec) -> Trainer:
    """Return the trainer that a study names, with its options checked.

    Raises TrainerError for an unknown name and for options that the trainer cannot use.
    """
    if ":" in spec.name:
        return _imported(spec.name)(spec)
    if spec.name not in TRAINERS:
        known = f"{', '.join(TRAINERS)}, or package.module:Class for your own"
        raise TrainerError(f"no trainer is called {spec.name!r}; known: {known}")
    return TRAINERS[spec.name](spec)


def _imported(name: str) -> type[Trainer]:
    """Return a trainer's class by its name `package.module:Class`; the current folder is searched after packages.

    Raises TrainerError where it cannot be imported, or is no complete trainer.
    """
    module, _, attribute = name.partition(":")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)  # last, so that its files hide no package
    try:
        trainer = getattr(import_module(module), attribute)
    except Exception as error:  # foreign code may raise anything
        raise TrainerError(
            f"trainer.name {name!r} cannot be imported: {type(error).__name__}: {error}; install its package for "
            f"{sys.executable}, or start tuner in the folder that holds it"
        ) from error
    if not (isinstance(trainer, type) and issubclass(trainer, Trainer)):
        raise TrainerError(f"trainer.name {name!r} is no trainer; derive the class from tuner.trainers.base.Trainer")
    lacks = [field for field in ("name", "accepts") if not hasattr(trainer, field)]
    if inspect.isabstract(trainer):
        lacks += sorted(trainer.__abstractmethods__)
    if lacks:
        raise TrainerError(f"trainer.name {name!r} lacks {', '.join(lacks)}; see tuner.trainers.base.Trainer")
    return trainer
