"""Arithmetic and rules with `{placeholders}`, as a study file writes them. Pure.

A text is read once into a term: a function of the placeholders' values. So no text is evaluated by Python.
"""

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*)*)\}")
_MOST_CHARACTERS = 200
"""The longest expression. It also bounds how deep parentheses can be nested."""

_Term = Callable[[Mapping[str, object]], Any]
"""Returns the value of a part of an expression, given the values of the placeholders."""
_OPERATIONS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_SIGNS: Mapping[type[ast.unaryop], Callable[[float], float]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_ORDERS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_EQUALITIES: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {ast.Eq: operator.eq, ast.NotEq: operator.ne}
_WORDS = {"true": True, "false": False}


class Expression:
    """An expression of numbers, placeholders, `+ - * / // %` and parentheses."""

    _kind = "arithmetic"
    """What the text must be, in the message of an error; a subclass has its own."""
    _hint = "write numbers, names such as {batch_size}, + - * / // % and parentheses"
    """What such a text may consist of, in the same message."""

    def __init__(self, text: str) -> None:
        """Read an expression of up to 200 characters.

        Raises ValueError for a longer text, and for one that is no expression. Its message has no subject, because the
        caller puts the name of a field before it: `is no arithmetic; write numbers, …`.
        """
        if len(text) > _MOST_CHARACTERS:
            raise ValueError(f"has {len(text)} characters, {_MOST_CHARACTERS} at most")
        self.text = text
        self._names: dict[str, str] = {}
        """The identifier that stands for a placeholder while Python parses the text → the placeholder's name."""
        self._numeric: set[str] = set()
        """The placeholders that must be numbers, as in arithmetic; `_arithmetic` adds them while the text is read."""
        # `{a} + 1` is no Python, so an identifier stands for each placeholder.
        python = _PLACEHOLDER.sub(self._identifier, text).strip()
        try:
            self._term = self._read(ast.parse(python, mode="eval").body)
        except SyntaxError as error:
            raise ValueError(f"is no {self._kind}; {self._hint}") from error

    @property
    def names(self) -> frozenset[str]:
        """The names of the placeholders."""
        return frozenset(self._names.values())

    @property
    def numeric_names(self) -> frozenset[str]:
        """The names of the placeholders that must be numbers: in arithmetic, or compared by `<` and its like."""
        return frozenset(self._numeric)

    def value(self, values: Mapping[str, object]) -> float | None:
        """Return the value of the expression; None where a placeholder has no value.

        Raises ValueError for a division by 0, for a word as a value, and for a result that is not finite.
        """
        if not self.names <= values.keys():
            return None
        number = float(self._evaluate(values))
        if not math.isfinite(number):
            raise ValueError(f"the result is {number}")
        return number

    def _evaluate(self, values: Mapping[str, object]) -> Any:
        """Return the value of the whole expression. Raises ValueError where it cannot be computed."""
        try:
            return self._term(values)
        except (ZeroDivisionError, OverflowError) as error:
            raise ValueError(str(error)) from error

    def _identifier(self, placeholder: re.Match[str]) -> str:
        """Return the identifier that stands for a placeholder while Python parses the text.

        The spaces around it keep `2{a}` from becoming one word, which would be valid Python.
        """
        identifier = f"placeholder{len(self._names)}"
        self._names[identifier] = placeholder[1]
        return f" {identifier} "

    def _read(self, node: ast.expr) -> _Term:
        """Return the term of the whole text; `Rule` overrides it, to read conditions."""
        return self._arithmetic(node)

    def _arithmetic(self, node: ast.expr) -> _Term:
        """Return the term of an arithmetic. Raises SyntaxError for a node that is none."""
        match node:
            case ast.BinOp(left=left, op=op, right=right) if operation := _OPERATIONS.get(type(op)):
                first, second = self._arithmetic(left), self._arithmetic(right)
                return lambda values: operation(first(values), second(values))
            case ast.UnaryOp(op=op, operand=operand) if sign := _SIGNS.get(type(op)):
                term = self._arithmetic(operand)
                return lambda values: sign(term(values))
            case ast.Name(id=identifier) if name := self._names.get(identifier):
                self._numeric.add(name)
                return lambda values: _number(name, values[name])
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                return lambda values: number
            case _:
                raise SyntaxError(ast.dump(node))


class Rule(Expression):
    """A condition that each config keeps, such as `{tp} * {pp} <= {ranks}` or `{stage} < 2 or {pp} == 1`."""

    _kind = "rule"
    _hint = f"{Expression._hint}; compare by < <= == != > >=, and combine by and, or, not"

    def holds(self, values: Mapping[str, object]) -> bool:
        """Return whether a config, given by its values, keeps the rule.

        A config that lacks a parameter of the rule keeps it. A config for which the rule cannot be computed, as for a
        division by 0, does not keep it.
        """
        if not self.names <= values.keys():
            return True
        try:
            return bool(self._evaluate(values))
        except ValueError:
            return False

    def _read(self, node: ast.expr) -> _Term:
        """Return the term of a condition, which is true or false. Raises SyntaxError for any other node."""
        match node:
            case ast.BoolOp(op=op, values=nodes):
                parts = [self._read(part) for part in nodes]
                combine = all if isinstance(op, ast.And) else any
                return lambda values: combine(part(values) for part in parts)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                term = self._read(operand)
                return lambda values: not term(values)
            case ast.Compare(left=left, ops=signs, comparators=nodes):  # a < b < c compares each with the next
                triples = zip([left, *nodes], signs, nodes, strict=False)  # the last node has no sign behind it
                comparisons = [self._comparison(first, sign, second) for first, sign, second in triples]
                return lambda values: all(comparison(values) for comparison in comparisons)
            case ast.Name(id=identifier) if name := self._names.get(identifier):
                return lambda values: values[name] is True  # a placeholder alone is a switch
            case _:
                raise SyntaxError(ast.dump(node))

    def _comparison(self, left: ast.expr, sign: ast.cmpop, right: ast.expr) -> _Term:
        """Return the term of a comparison. Words and switches can be equal, and only numbers have an order.

        Raises SyntaxError for any other sign, such as `in`.
        """
        if compare := _EQUALITIES.get(type(sign)):
            first, second = self._side(left), self._side(right)
        elif compare := _ORDERS.get(type(sign)):
            first, second = self._arithmetic(left), self._arithmetic(right)
        else:
            raise SyntaxError(ast.dump(sign))
        return lambda values: compare(first(values), second(values))

    def _side(self, node: ast.expr) -> _Term:
        """Return the term of one side of `==` or `!=`: a placeholder's value of any kind, a word, or arithmetic."""
        match node:
            case ast.Name(id=identifier) if name := self._names.get(identifier):
                return lambda values: values[name]
            case ast.Name(id=word) if word in _WORDS:
                return lambda values: _WORDS[word]
            case ast.Constant(value=str() as text):
                return lambda values: text
            case _:
                return self._arithmetic(node)


def _number(name: str, value: object) -> float:
    """Return the value of the placeholder `name`. Raises ValueError where it is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is {value!r}, not a number")
    return value
