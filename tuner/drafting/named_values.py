"""Reads the values that a person names for a flag, and refuses those that cannot be meant."""

import re

from pydantic import ValidationError

from tuner.drafting.searches import Role
from tuner.errors import StudyError
from tuner.study import ParameterSpec, Value, complaints

_NUMBER = re.compile(r"[+-]?(?:0|[1-9][0-9]*|(?=\.[0-9]))(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?")
"""A number as programs read and write it."""
_LIKE_NUMBER = re.compile(r"[+-]?\d[\d'_\s.]*|[+-]?(?:inf|infinity|nan)", re.IGNORECASE)
"""Another spelling of a number, such as `50'000`, `050`, or digits of another script."""
_SHORT_NUMBER = re.compile(r"[+-]?[\d.]+[kmg]", re.IGNORECASE)
"""A number such as `50k`; it may be a word, as in `max_memory=8g`."""


def typed_value(text: str) -> Value:
    """Return a value as typed in a command: a number, if it is written as one, and otherwise the text."""
    number = _number(text)
    return text if number is None or abs(number) == float("inf") else number


def named_values(flag: str, text: str, own: Value | None) -> tuple[Value, ...]:
    """Return the values that stand in a text with commas between, without repetition.

    `own` is the value that the command uses. Raises StudyError for a value that the flag cannot have.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    values = tuple(dict.fromkeys(_value(flag, word, own) for word in words))
    try:
        ParameterSpec.model_validate({"choices": values})
    except ValidationError as error:
        raise StudyError(complaints(error, ParameterSpec, flag)[0]) from error
    return values


def _value(flag: str, word: str, own: Value | None) -> Value:
    number, least = _number(word), _least(flag)
    if least is not None and (not isinstance(number, int) or number < least):
        raise StudyError(f"{flag}={_cut(word)}: write whole numbers of at least {least}, with commas between them")
    if not word.isprintable():
        raise StudyError(f"{flag}={_cut(word)!r} has control characters")
    if number is None and _is_meant_as_number(word, own):
        raise StudyError(f"{flag}={_cut(word)}: write numbers as 50000, 0.5 or 1e-4, with commas between them")
    return word if number is None else number


def _least(flag: str) -> int | None:
    """Return the smallest number that a size or a number of workers may have; None for any other flag."""
    if Role.WORKERS.has(flag):
        return 0
    return 1 if Role.BATCH.has(flag) or Role.ENVIRONMENTS.has(flag) else None


def _is_meant_as_number(word: str, own: Value | None) -> bool:
    is_number = isinstance(own, int | float) and not isinstance(own, bool)
    return bool(_LIKE_NUMBER.fullmatch(word) or (is_number and _SHORT_NUMBER.fullmatch(word)))


def _number(text: str) -> int | float | None:
    """Return a number that is written plainly; None for any other text. More than 300 digits are infinite."""
    if not _NUMBER.fullmatch(text):
        return None
    return int(text) if re.fullmatch("[+-]?[0-9]{1,300}", text) else float(text)


def _cut(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}…"
