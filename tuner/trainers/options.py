"""From a study's `trainer.options` to the typed options of one trainer."""

from typing import TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tuner.errors import TrainerError
from tuner.study.parameter import Strict
from tuner.study.spec import TrainerSpec

Options = TypeVar("Options", bound=Strict)


def checked(model: type[Options], spec: TrainerSpec) -> Options:
    """Give the options of `spec` as a `model`. Raises TrainerError with all errors, each with its path."""
    try:
        return model.model_validate(spec.options)
    except ValidationError as error:
        lines = [f"  {_line(part, model)}" for part in error.errors()]
        raise TrainerError(f"trainer {spec.name}: {len(lines)} error(s) in its options\n" + "\n".join(lines)) from error


def _line(part: ErrorDetails, model: type[Strict]) -> str:
    where = ".".join(str(step) for step in ("trainer", "options", *part["loc"]))
    match part["type"]:
        case "extra_forbidden":
            return f"{where}: unknown option; known: {', '.join(model.model_fields)}"
        case "missing":
            return f"{where}: is required"
        case _:
            return f"{where}: {part['msg'].removeprefix('Value error, ')} (found {part['input']!r})"
