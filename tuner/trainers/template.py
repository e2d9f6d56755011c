"""Command lines and arithmetic with placeholders, which a config fills."""

import ast
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from string import Formatter

from tuner.study import parts, referring, written

_FLAG = re.compile(r"--?[A-Za-z][\w.-]*")
_NAMES_ITSELF = re.compile(r"-|[+~@\w.-]+=")
"""How a word begins that is no value of the flag before it: `--envs={num_envs}`, `env.num_envs={num_envs}`."""


@dataclass(frozen=True, slots=True)
class TemplatePiece:
    """A text and the placeholder after it."""

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
    """Return the names in `{flag:name}`. Raises the errors of `placeholders`."""
    return frozenset(piece.name for word in words for piece in pieces(word) if piece.name and piece.is_flag)


def pieces(word: str) -> list[TemplatePiece]:
    """Return the pieces of a word between its placeholders and references. Raises as `placeholders` does."""
    split: list[TemplatePiece] = []
    for is_reference, some in groupby(parts(word), key=lambda part: part.is_reference):
        if is_reference:
            split += [TemplatePiece(part.literal, None, is_flag=False, is_reference=True) for part in some]
        else:
            between = "".join(part.literal if part.name is None else _doubled(part.literal) for part in some)
            split += [_piece(word, *field) for field in Formatter().parse(between)]
    return split


def _doubled(literal: str) -> str:
    return literal.replace("{", "{{").replace("}", "}}")


class Reference(str):
    """A value that a probe looks up at its start, such as `${SLURM_NODEID}`."""

    __slots__ = ()


def fill(words: Sequence[str], values: Mapping[str, object], *, to_launch: bool = False) -> tuple[str, ...]:
    """Return words with values in place of placeholders. A word with a placeholder that has no value is left out.

    If such a word is the value of the flag before it, the flag is left out, too. So both words of `--envs {num_envs}`
    are left out. Of `--headless --envs={num_envs}` only the second word is left out.
    `{flag:name}` needs no value. Without a value it is empty, and a word that is empty for this reason is left out.

    With `to_launch`, the words are texts with references: only what the template refers to is looked up. What its text
    and the values spell like a reference is a literal there, unless the value is a `Reference`.
    """
    kept: list[str] = []
    before = ""
    for word in words:
        parts_of_word = pieces(word)
        if all(part.is_flag or part.name is None or part.name in values for part in parts_of_word):
            texts = [text for part in parts_of_word for text in _texts(part, values)]
            filled = referring(texts) if to_launch else "".join(text for text, _ in texts)
            kept += [filled] if filled or not any(part.is_flag for part in parts_of_word) else []
        elif _FLAG.fullmatch(before) and not _NAMES_ITSELF.match(word):
            kept.pop()
        before = word
    return tuple(kept)


def _piece(word: str, text: str, name: str | None, spec: str | None, conversion: str | None) -> TemplatePiece:
    is_flag = name == "flag" and bool(spec)
    name, spec = (spec, None) if is_flag else (name, spec)
    if name is not None and (not re.fullmatch(r"[A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*)*", name) or spec or conversion):
        raise ValueError(f"{word!r} holds a placeholder that is not {{name}} or {{flag:name}}; double a literal brace")
    return TemplatePiece(text, name, is_flag)


def _texts(part: TemplatePiece, values: Mapping[str, object]) -> list[tuple[str, bool]]:
    """Return the texts of a piece, each with whether it is a reference."""
    filled = _filled(part, values)
    if isinstance(values.get(part.name or ""), Reference):
        return [(part.text, part.is_reference), (filled, True)]
    return [(part.text + filled, part.is_reference)]


def _filled(part: TemplatePiece, values: Mapping[str, object]) -> str:
    if part.name is None:
        return ""
    value = values.get(part.name)
    if part.is_flag:
        return f"--{part.name}" if value is True else ""
    return written(value) if isinstance(value, bool) else str(value)


_Term = Callable[[Mapping[str, object]], float]
"""Computes a part of an expression from the values of the placeholders."""
_OPERATIONS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
_SIGNS: Mapping[type[ast.unaryop], Callable[[float], float]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_HINT = "write numbers, names such as {batch_size}, + - * / // and parentheses"


class Expression:
    """An expression of numbers, placeholders, `+ - * / //` and parentheses."""

    def __init__(self, text: str) -> None:
        """Read an expression of up to 200 characters, which also bounds how deep parentheses can be nested.

        Raises ValueError that says which part cannot be used.
        """
        if len(text) > 200:
            raise ValueError(f"has {len(text)} characters, 200 at most")
        self._names: dict[str, str] = {}
        source = "".join(map(self._source, pieces(text)))
        try:
            self._term = self._built(ast.parse(source.strip(), mode="eval").body)
        except SyntaxError as error:
            raise ValueError(f"is no arithmetic; {_HINT}") from error

    @property
    def names(self) -> frozenset[str]:
        """The names of the placeholders."""
        return frozenset(self._names.values())

    def value(self, values: Mapping[str, object]) -> float | None:
        """Return the value of the expression; None where a placeholder has no value.

        Raises ValueError for a division by 0, for a word as a value, and for a result that is not finite.
        """
        if not self.names <= values.keys():
            return None
        try:
            number = float(self._term(values))
        except (ZeroDivisionError, OverflowError) as error:
            raise ValueError(str(error)) from error
        if not math.isfinite(number):
            raise ValueError(f"the result is {number}")
        return number

    def _source(self, piece: TemplatePiece) -> str:
        """Return a piece as source for `ast`, with an identifier for its placeholder."""
        if piece.is_flag or not re.fullmatch(r"[\d\s.eE+*/()-]*", piece.text):
            raise ValueError(f"{(piece.text.strip() or piece.name)!r} cannot be used; {_HINT}")
        if piece.name is None:
            return piece.text
        stand_in = f"placeholder{len(self._names)}"
        self._names[stand_in] = piece.name
        return f"{piece.text} {stand_in} "  # the spaces keep `2{a}` from becoming one word

    def _built(self, node: ast.expr) -> _Term:
        """Return what computes a node of the expression. Raises SyntaxError for a node that is no arithmetic."""
        match node:
            case ast.BinOp(left=left, op=op, right=right) if combined := _OPERATIONS.get(type(op)):
                first, second = self._built(left), self._built(right)
                return lambda values: combined(first(values), second(values))
            case ast.UnaryOp(op=op, operand=operand) if signed := _SIGNS.get(type(op)):
                term = self._built(operand)
                return lambda values: signed(term(values))
            case ast.Name(id=stand_in) if name := self._names.get(stand_in):
                return lambda values: _number(name, values[name])
            case ast.Constant(value=int() | float() as number):
                return lambda values: number
            case _:
                raise SyntaxError(ast.dump(node))


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is {value!r}, not a number")
    return value
