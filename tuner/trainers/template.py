"""Command lines with `{placeholders}`, written as for `str.format`: a literal brace is doubled.

`{num_envs}` and `{env.num_envs}` become values. `{flag:headless}` becomes `--headless` where headless is true.

A reference to an environment variable, `${NAME}`, is no placeholder and stays as it is.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from string import Formatter

from tuner.study.space import written
from tuner.study.variables import REFERENCE

_FLAG = re.compile(r"--?[A-Za-z][\w.-]*")
_NAMES_ITSELF = re.compile(r"-|[+~@\w.-]+=")
"""How a word begins that is no value of the flag before it: `--envs={num_envs}`, `env.num_envs={num_envs}`."""
_NAME = re.compile(r"[A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*)*")
_FLAG_FIELD = "flag"


@dataclass(frozen=True, slots=True)
class Piece:
    """A text and the placeholder after it."""

    text: str
    name: str | None
    """None where no placeholder follows."""
    is_flag: bool
    """Whether the placeholder is a flag that is there or not: `{flag:name}`."""


def placeholders(words: Iterable[str]) -> frozenset[str]:
    """Return the names of the placeholders in `words`.

    Raises ValueError for a stray brace, and for anything but `name` or `flag:name` between braces.
    """
    return frozenset(piece.name for word in words for piece in pieces(word) if piece.name is not None)


def flags(words: Iterable[str]) -> frozenset[str]:
    """Return the names in `{flag:name}`. Raises the errors of `placeholders`."""
    return frozenset(piece.name for word in words for piece in pieces(word) if piece.name and piece.is_flag)


def pieces(word: str) -> list[Piece]:
    """Split a word at its placeholders. Raises the errors of `placeholders`."""
    return [_piece(word, *field) for field in Formatter().parse(_literal_references(word))]


def fill(words: Sequence[str], values: Mapping[str, object]) -> tuple[str, ...]:
    """Replace the placeholders by their values. A word with a placeholder that has no value is left out.

    If such a word is the value of the flag before it, the flag is left out, too. So both words of `--envs {num_envs}`
    are left out. Of `--headless --envs={num_envs}` only the second word is left out.
    `{flag:name}` needs no value. Without a value it is empty, and a word that is empty for this reason is left out.
    """
    kept: list[str] = []
    before = ""
    for word in words:
        parts = pieces(word)
        if all(part.is_flag or part.name is None or part.name in values for part in parts):
            filled = "".join(part.text + _filled(part, values) for part in parts)
            kept += [filled] if filled or not any(part.is_flag for part in parts) else []
        elif _FLAG.fullmatch(before) and not _NAMES_ITSELF.match(word):
            kept.pop()
        before = word
    return tuple(kept)


def _piece(word: str, text: str, name: str | None, spec: str | None, conversion: str | None) -> Piece:
    is_flag = name == _FLAG_FIELD and bool(spec)
    name, spec = (spec, None) if is_flag else (name, spec)
    if name is not None and (not _NAME.fullmatch(name) or spec or conversion):
        raise ValueError(f"{word!r} holds a placeholder that is not {{name}} or {{flag:name}}; double a literal brace")
    return Piece(text, name, is_flag)


def _filled(part: Piece, values: Mapping[str, object]) -> str:
    if part.name is None:
        return ""
    value = values.get(part.name)
    if part.is_flag:
        return f"--{part.name}" if value is True else ""
    return written(value) if isinstance(value, bool) else str(value)


def _literal_references(word: str) -> str:
    """Double the braces of references to environment variables, which are no placeholders."""
    return REFERENCE.sub(lambda found: found[0].replace("{", "{{").replace("}", "}}"), word)
