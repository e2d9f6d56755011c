"""Makes values of JSON storable in any database, and reads stored JSON that may be damaged."""

import json
import math
import re
from typing import Any

MOST_CHARACTERS = 20_000
"""A longer text is stored without its middle."""
MOST = 2**63
"""Whole numbers from here on are not kept; the bound is above every number that is measured."""
UNREADABLE = "\ufffd"
"""Stands for a character that no database and no file can store: half of a surrogate pair, and NUL."""
_ODD_TEXT = ("\\u0000", "\\ud", "\\uD")
_LONG_NUMBER = b"0" * 19
"""`MOST` has so many digits."""
_AS_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def storable(value: Any) -> Any:
    """Return a value of JSON that every database can store and every program can read.

    JSON has no infinity and no NaN, and other programs read whole numbers of 64 bits at most: a number beyond becomes
    None. Characters that cannot be stored become `UNREADABLE`.
    """
    match value:
        case str():
            return storable_text(value)
        case dict():
            return {storable(key): storable(part) for key, part in value.items()}
        case list() | tuple():
            return [storable(part) for part in value]
        case int() if abs(value) >= MOST:
            return None
        case float() if not math.isfinite(value):
            return None
        case _:
            return value


def storable_text(text: str) -> str:
    """Return a text of at most `MOST_CHARACTERS` characters that every database can store."""
    if len(text) > MOST_CHARACTERS:
        half = MOST_CHARACTERS // 2 - 1
        text = f"{text[:half]} … {text[len(text) - half + 1 :]}"
    return _UNSTORABLE.sub(UNREADABLE, text)


def read_json(document: object) -> Any:
    """Return the storable value of a JSON text; None where it is no JSON, or nested too deeply."""
    if not isinstance(document, str | bytes):
        return None
    try:
        if isinstance(document, str) and is_plain(document):
            return _PLAIN.decode(document)
        return storable(json.loads(document))
    except (ValueError, RecursionError):
        return None


def _finite(number: str) -> float | None:
    value = float(number)
    return value if math.isfinite(value) else None


_PLAIN = json.JSONDecoder(parse_float=_finite, parse_constant=lambda _: None)
"""Reads a plain JSON text at once as `storable` would return its value; a constant is an infinity or no number."""


def is_plain(document: str) -> bool:
    """Return whether the value of a JSON text is surely storable as it is, if all its fractions are finite."""
    if len(document) > MOST_CHARACTERS or any(odd in document for odd in _ODD_TEXT):
        return False
    return _LONG_NUMBER not in document.encode(errors="replace").translate(_AS_ZEROS)
