"""Arithmetic with `{placeholders}`, such as `{batch_size} * {ranks}`. Pure; the text never runs as Python."""

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping

from tuner.trainers.template import Piece, pieces

MOST_CHARS = 200
"""The longest expression. The limit also bounds how deep parentheses can be nested."""

_Term = Callable[[Mapping[str, object]], float]
"""Computes a part of an expression from the values of the placeholders."""
_ALLOWED = re.compile(r"[\d\s.eE+*/()-]*")
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
        """Read an expression. Raises ValueError that says which part cannot be used."""
        if len(text) > MOST_CHARS:
            raise ValueError(f"has {len(text)} characters, {MOST_CHARS} at most")
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
            found = float(self._term(values))
        except (ZeroDivisionError, OverflowError) as error:
            raise ValueError(str(error)) from error
        if not math.isfinite(found):
            raise ValueError(f"the result is {found}")
        return found

    def _source(self, piece: Piece) -> str:
        """Return a piece as source for `ast`, with an identifier for its placeholder."""
        if piece.is_flag or not _ALLOWED.fullmatch(piece.text):
            raise ValueError(f"{(piece.text.strip() or piece.name)!r} cannot be used; {_HINT}")
        if piece.name is None:
            return piece.text
        stand_in = f"placeholder{len(self._names)}"
        self._names[stand_in] = piece.name
        return f"{piece.text} {stand_in} "  # the spaces keep `2{a}` from becoming one word

    def _built(self, node: ast.expr) -> _Term:
        match node:
            case ast.BinOp(left=left, op=op, right=right) if combined := _OPERATIONS.get(type(op)):
                one, other = self._built(left), self._built(right)
                return lambda values: combined(one(values), other(values))
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
