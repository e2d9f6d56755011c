"""Finds the trainer that a study file names: a built-in trainer, or a class of somebody else's module."""

import inspect
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path

from tuner.errors import TrainerError
from tuner.study.spec import TrainerSpec
from tuner.trainers.base import Trainer
from tuner.trainers.command import CommandTrainer
from tuner.trainers.mimickit.trainer import MimicKitTrainer
from tuner.trainers.reference.adapter import ReferenceTrainer

TRAINERS: Mapping[str, Callable[[TrainerSpec], Trainer]] = {
    "mimickit": MimicKitTrainer,
    "command": CommandTrainer,
    "reference": ReferenceTrainer,
}
"""The built-in trainers, by the name that study files use."""


def open_trainer(spec: TrainerSpec) -> Trainer:
    """Return the trainer that a study names, with its options checked. Raises TrainerError for an unknown name."""
    if ":" in spec.name:
        return _imported(spec.name)(spec)
    if spec.name not in TRAINERS:
        raise TrainerError(
            f"no trainer is called {spec.name!r}; known: {', '.join(TRAINERS)}, or package.module:Class for your own"
        )
    return TRAINERS[spec.name](spec)


def _imported(name: str) -> type[Trainer]:
    """Import `package.module:Class`, from what is installed or else from the folder in which `tuner` is started."""
    module, _, attribute = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        found = getattr(import_module(module), attribute)
    except Exception as error:
        raise TrainerError(
            f"trainer.name {name!r} cannot be imported: {type(error).__name__}: {error}; install its package for "
            f"{sys.executable}, or start tuner in the folder that holds it"
        ) from error
    if not (isinstance(found, type) and issubclass(found, Trainer)):
        raise TrainerError(f"trainer.name {name!r} is no trainer; derive the class from tuner.trainers.base.Trainer")
    lacks = [one for one in ("name", "accepts") if not hasattr(found, one)]
    if inspect.isabstract(found):
        lacks += sorted(found.__abstractmethods__)
    if lacks:
        raise TrainerError(f"trainer.name {name!r} lacks {', '.join(lacks)}; see tuner.trainers.base.Trainer")
    return found
