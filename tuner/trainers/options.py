"""Turns a study's `trainer.options` into the typed options of one trainer."""

from typing import TypeVar

from pydantic import ValidationError

from tuner.errors import TrainerError
from tuner.study.complaints import complaints
from tuner.study.parameter import Strict
from tuner.study.spec import TrainerSpec

Options = TypeVar("Options", bound=Strict)


def checked(model: type[Options], spec: TrainerSpec) -> Options:
    """Return the options of `spec` as a `model`. Raises TrainerError with all errors, each with its path."""
    try:
        return model.model_validate(spec.options)
    except ValidationError as error:
        lines = complaints(error, model, "trainer", "options")
        raise TrainerError(
            "\n  ".join([f"trainer {spec.name}: {len(lines)} error(s) in its options", *lines])
        ) from error
