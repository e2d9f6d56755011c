"""Describes errors in a study file in plain words instead of the words of pydantic, which finds them. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tuner.study.forms import IN_WORDS

MOST_SHOWN = 200
"""The most characters of a wrong value that its message shows."""
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
"""The words for each kind of error. All other kinds keep pydantic's own message."""


def complaints(error: ValidationError, model: type[BaseModel], *above: str) -> list[str]:
    """Return one message per error, in the file's order: its path, what is wrong, and which value was found.

    The paths begin with the keys `above`.
    """
    return [_complaint(part, model, above) for part in _without_consequences(error.errors())]


def _without_consequences(parts: Sequence[ErrorDetails]) -> Iterable[ErrorDetails]:
    """Leave out the error that a list is too short when one of its members has an error.

    Pydantic does not count a member with an error, so the list may only seem too short.
    """
    parents = {part["loc"][:depth] for part in parts for depth in range(len(part["loc"]))}
    return (part for part in parts if part["type"] != "too_short" or part["loc"] not in parents)


def _complaint(part: ErrorDetails, model: type[BaseModel], above: Sequence[str]) -> str:
    where = ".".join(map(str, (*above, *part["loc"]))) or "study"
    if part["type"] == "extra_forbidden":
        return f"{where}: unknown key; known: {', '.join(_keys(model, part['loc'][:-1]))}"
    found = "" if isinstance(part["input"], dict) else f" (found {_cut(repr(part['input']))})"
    wrong = _IN_WORDS.get(part["type"]) or IN_WORDS.get(part.get("ctx", {}).get("pattern", ""))
    if part["type"] == "string_type" and isinstance(part["input"], list | tuple):
        wrong = f"should be text, not a list; write {_cut(repr(','.join(map(str, part['input']))))}"
    return f"{where}: {wrong or part['msg'].removeprefix('Value error, ')}{found}"


def _cut(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"


def _keys(model: type[BaseModel], place: Iterable[int | str]) -> list[str]:
    """Return the keys that `model` allows at this place."""
    kind: Any = model
    for step in place:
        fields = getattr(kind, "model_fields", {})
        kind = fields[step].annotation if step in fields else _member(kind)
    return list(getattr(kind if hasattr(kind, "model_fields") else _member(kind), "model_fields", {}))


def _member(kind: Any) -> Any:
    """Return the type of the members of a list, a mapping or a union.

    Of several types, a model with fixed keys is preferred. Otherwise the last type is returned.
    """
    members = [one for one in get_args(kind) if one is not Ellipsis]
    return next((one for one in members if hasattr(one, "model_fields")), members[-1] if members else None)
