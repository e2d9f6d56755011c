"""The variables of a study: references to them (`${NAME}`, `${NAME:-default}`).

In a text with references, `$${NAME}` stands for a literal `${NAME}`: of several dollars before a name in braces, each
two stand for one, and one that is left over begins a reference. All other dollars stand for themselves.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

_DOLLARS = re.compile(r"(?<!\$)\$+(?=\{[A-Za-z_])")
_BRACES = re.compile(r"\{(?P<name>[A-Za-z_]\w*)(?::-(?P<default>[^}]*))?\}", re.ASCII)
_LITERAL = re.compile(r"\{(?P<name>[A-Za-z_]\w*)(?::-(?:[^}$]|\$(?!\{))*)?\}", re.ASCII)
"""Braces after two dollars. They hold no reference."""


class TextPart(NamedTuple):
    """A part of a text with references: a reference, `$${NAME}`, or what is between them."""

    source: str
    """The part as it is written."""
    literal: str
    """What the part stands for; of a reference, the reference itself."""
    name: str | None = None
    """The name in the braces; None for a part without."""
    default: str | None = None
    """The default of a reference; None where it has none."""
    is_reference: bool = False


def parts(text: str) -> Iterator[TextPart]:
    """Yield the parts of a text with references, none of them empty.

    An odd number of dollars before braces ends in a reference; of an even number, each two stand for one. The time is
    proportional to the length.
    """
    place, last = 0, text.rfind("}")
    for dollars in _DOLLARS.finditer(text):
        begin, end, (pairs, is_single) = dollars.start(), dollars.end(), divmod(len(dollars[0]), 2)
        if begin < place:  # in the default of a reference
            continue
        braces = (_BRACES if is_single else _LITERAL).match(text, end) if end < last else None
        if not (braces or pairs):  # a dollar and a brace that is never closed
            continue
        if begin > place:
            yield TextPart(source=text[place:begin], literal=text[place:begin])
        place = braces.end() if braces else end
        if not (braces and is_single):
            literal = "$" * (pairs + is_single) + (braces[0] if braces else "")
            yield TextPart(source=text[begin:place], literal=literal, name=braces["name"] if braces else None)
            continue
        if pairs:
            yield TextPart(source="$$" * pairs, literal="$" * pairs)
        reference = text[end - 1 : place]
        name, default = braces["name"], braces["default"]
        yield TextPart(source=reference, literal=reference, name=name, default=default, is_reference=True)
    if place < len(text):
        yield TextPart(source=text[place:], literal=text[place:])


def refers(text: str) -> bool:
    """Return whether a text has a reference."""
    return any(part.is_reference for part in parts(text))


def escaped(literal: str) -> str:
    """Return the text with references that stands for a literal: `$${NAME}` for `${NAME}`."""
    return _DOLLARS.sub(lambda dollars: 2 * dollars[0], literal)


def referring(pieces: Iterable[tuple[str, bool]]) -> str:
    """Return the text with references that has these pieces, each with whether it is a reference or a literal."""
    texts, literal = [], ""
    for piece, is_reference in pieces:
        if is_reference:
            texts += [escaped(f"{literal}{{_").removesuffix("{_"), piece]  # `{_`: dollars at its end are doubled, too
            literal = ""
        else:
            literal += piece
    return "".join((*texts, escaped(literal)))


def expanded(text: str, environ: Mapping[str, str], missing: Callable[[str], None] = lambda _: None) -> str:
    """Return what a text with references stands for: the value of each variable in place of its reference.

    A variable that is empty or not set has its default. Without a default the reference stays as it is, and `missing`
    is called with the variable's name.
    """

    def value(part: TextPart) -> str:
        """Return what a part stands for."""
        if not part.is_reference or part.name is None:
            return part.literal
        if known := environ.get(part.name):
            return known
        if part.default is None:
            missing(part.name)
            return part.source
        return part.default

    return "".join(map(value, parts(text)))


def looked_up(texts: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that references in the texts look up: name → value."""
    names = {part.name for text in texts for part in parts(text) if part.is_reference and part.name}
    return {name: environ[name] for name in sorted(names) if environ.get(name)}


def is_expansion(text: str, of: str) -> bool:
    """Return whether a text may be `of` with values in place of its references; False where `of` has none."""
    literals = [""]  # the texts before, between and after the references
    for part in parts(of):
        if part.is_reference:
            literals.append("")
        else:
            literals[-1] += part.source
    begin, end = literals[0], literals[-1]
    if len(literals) == 1 or not (text.startswith(begin) and text[len(begin) :].endswith(end)):
        return False
    place, stop = len(begin), len(text) - len(end)
    for literal in literals[1:-1]:
        if (at := text.find(literal, place, stop)) < 0:
            return False
        place = at + len(literal)
    return True
