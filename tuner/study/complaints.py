"""What is wrong with a part of a study file, in words of its own rather than of the library that checks it. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tuner.study import forms

_IN_WORDS = {
    "missing": "is required",
    "string_type": "should be text; put it in quotes",
    "tuple_type": "should be a list, such as [a, b]",
    "dict_type": "should be a mapping of keys to values",
    "model_type": "should be a mapping of keys to values",
    "too_short": "is empty",
    "int_parsing": "should be a whole number",
    "int_from_float": "should be a whole number",
    "float_parsing": "should be a number",
    "too_long": "has too many values",
}
"""Kind of error → what to say of it; of the others the library's own words will do."""


def complaints(error: ValidationError, model: type[BaseModel], *above: str) -> list[str]:
    """Give each error with its path below the keys `above`, what is wrong and what was found, in the file's order."""
    return [_complaint(part, model, above) for part in _telling(error.errors())]


def _telling(parts: Sequence[ErrorDetails]) -> Iterable[ErrorDetails]:
    """Leave out that a list is too short where its members are to blame: those that fail are not counted."""
    holders = {part["loc"][:depth] for part in parts for depth in range(len(part["loc"]))}
    return (part for part in parts if part["type"] != "too_short" or part["loc"] not in holders)


def _complaint(part: ErrorDetails, model: type[BaseModel], above: Sequence[str]) -> str:
    where = ".".join(map(str, (*above, *part["loc"]))) or "study"
    if part["type"] == "extra_forbidden":
        return f"{where}: unknown key; known: {', '.join(_keys(model, part['loc'][:-1]))}"
    found = "" if isinstance(part["input"], dict) else f" (found {part['input']!r})"
    wrong = _IN_WORDS.get(part["type"]) or forms.IN_WORDS.get(part.get("ctx", {}).get("pattern", ""))
    if part["type"] == "string_type" and isinstance(part["input"], list | tuple):
        wrong = f"should be text, not a list; write {','.join(map(str, part['input']))!r}"
    return f"{where}: {wrong or part['msg'].removeprefix('Value error, ')}{found}"


def _keys(model: type[BaseModel], place: Iterable[int | str]) -> list[str]:
    """Name the keys that there may be at a place in what `model` describes."""
    kind: Any = model
    for step in place:
        fields = getattr(kind, "model_fields", {})
        kind = fields[step].annotation if step in fields else _member(kind)
    return list(getattr(kind, "model_fields", {}))


def _member(kind: Any) -> Any:
    """Give what a list, a mapping or a choice of kinds holds: the mapping with fixed keys among them, else the last."""
    members = [one for one in get_args(kind) if one is not Ellipsis]
    return next((one for one in members if hasattr(one, "model_fields")), members[-1] if members else None)
