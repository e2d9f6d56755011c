"""Command lines: their placeholders, which a config fills, and the Python script that they name."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from string import Formatter
from typing import NamedTuple

from tuner.study import joined, parts, value_text


class TemplatePiece(NamedTuple):
    """A piece of a word: a text, and the placeholder after it."""

    text: str
    name: str | None
    """None where no placeholder follows."""
    is_flag: bool
    """Whether the placeholder is a flag that is there or not: `{flag:name}`."""
    is_reference: bool = False
    """Whether the text is a reference to a variable, as it is written."""


def placeholders(words: Iterable[str]) -> frozenset[str]:
    """Return the names of the placeholders in `words`.

    Raises ValueError for a stray brace, and for anything but `name` or `flag:name` between braces.
    """
    return frozenset(piece.name for word in words for piece in pieces(word) if piece.name is not None)


def flags(words: Iterable[str]) -> frozenset[str]:
    """Return the names of the placeholders `{flag:name}` in `words`. Raises the errors of `placeholders`."""
    return frozenset(piece.name for word in words for piece in pieces(word) if piece.name and piece.is_flag)


def pieces(word: str) -> list[TemplatePiece]:
    """Return the pieces of a word, each up to the end of a placeholder or reference. Raises as `placeholders` does.

    `${HOME}/run-{seed}.log` has three: the reference, then `/run-` with the placeholder `seed`, then `.log`.
    """
    split: list[TemplatePiece] = []
    for is_reference, parts_in_a_row in groupby(parts(word), key=lambda part: part.is_reference):
        if is_reference:
            split += [TemplatePiece(part.literal, None, is_flag=False, is_reference=True) for part in parts_in_a_row]
        else:  # only a literal such as `${A}`, written as `$${A}`, has a name: its braces hold no placeholder
            doubled = str.maketrans({"{": "{{", "}": "}}"})  # literal braces to `Formatter`
            literals = (part.literal.translate(doubled) if part.name else part.literal for part in parts_in_a_row)
            split += [_piece(word, *field) for field in Formatter().parse("".join(literals))]
    return split


class Reference(str):
    """A value that a probe looks up at its start, such as `${SLURM_NODEID}`."""

    __slots__ = ()


def fill(words: Sequence[str], values: Mapping[str, object], *, to_launch: bool = False) -> tuple[str, ...]:
    """Return words with `values` in place of placeholders.

    A word with a placeholder without a value is left out, and so is the flag before it if the word is its value: both
    words of `--envs {num_envs}`, and only the second of `--headless --envs={num_envs}`. `{flag:name}` becomes `--name`
    where the value is True, and otherwise nothing; a word that is then empty is left out.

    With `to_launch`, the result is text with references, which a probe looks up at its start: those of the words, and
    each value that is a `Reference`. Any other value that is spelled like a reference is escaped, so that it stays.
    """
    filled: list[str] = []
    before = ""
    for word in words:
        pieces_of_word = pieces(word)
        if all(piece.is_flag or piece.name is None or piece.name in values for piece in pieces_of_word):
            texts = [text for piece in pieces_of_word for text in _texts(piece, values)]
            filled_word = joined(texts) if to_launch else "".join(text for text, _ in texts)
            if filled_word or not any(piece.is_flag for piece in pieces_of_word):
                filled.append(filled_word)
        # the value of the flag before it, not a word such as `--envs={num_envs}` or `env.num_envs={num_envs}`
        elif re.fullmatch(r"--?[A-Za-z][\w.-]*", before) and not re.match(r"-|[+~@\w.-]+=", word):
            filled.pop()
        before = word
    return tuple(filled)


def _piece(word: str, text: str, name: str | None, spec: str | None, conversion: str | None) -> TemplatePiece:
    """Return the piece for what `Formatter` splits off a word: a text, and the name, format and conversion of a field.

    To `Formatter`, `{flag:name}` is the field `flag` with the format `name`. Raises ValueError, with the `word`, for
    any other format, and for a conversion such as `!r`.
    """
    is_flag = name == "flag" and bool(spec)
    if is_flag:
        name, spec = spec, None
    if name is not None and (not re.fullmatch(r"[A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*)*", name) or spec or conversion):
        raise ValueError(f"{word!r} holds a placeholder that is not {{name}} or {{flag:name}}; double a literal brace")
    return TemplatePiece(text, name, is_flag)


def _texts(piece: TemplatePiece, values: Mapping[str, object]) -> list[tuple[str, bool]]:
    """Return the texts that a piece becomes with `values`, each with whether it is a reference to a variable."""
    value = "" if piece.name is None else values.get(piece.name)
    if isinstance(value, Reference):
        return [(piece.text, piece.is_reference), (value, True)]
    if piece.is_flag:
        value = f"--{piece.name}" if value is True else ""
    return [(piece.text + value_text(value), piece.is_reference)]
