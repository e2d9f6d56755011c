"""Texts with references to variables (`${NAME}`, `${NAME:-default}`), and command lines in shell quoting.

In a text with references, `$${NAME}` stands for a literal `${NAME}`: of several dollars before a name in braces, each
two stand for one, and one that is left over begins a reference. All other dollars stand for themselves.
"""

import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

_DOLLARS_BEFORE_NAME = re.compile(r"(?<!\$)\$+(?=\{[A-Za-z_])")
"""All dollars in a row that stand before a brace and the first letter of a name."""
_REFERENCE_BRACES = re.compile(r"\{(?P<name>[A-Za-z_]\w*)(?::-(?P<default>[^}]*))?\}", re.ASCII)
"""Braces after a dollar that begins a reference. A default may hold any text without a closing brace."""
_LITERAL_BRACES = re.compile(r"\{(?P<name>[A-Za-z_]\w*)(?::-(?:[^}$]|\$(?!\{))*)?\}", re.ASCII)
"""Braces after two dollars. A default in them ends before a reference."""


class TextPart(NamedTuple):
    """A part of a text with references: a reference, `$${NAME}`, or what is between them."""

    source: str
    """The part as it is written."""
    literal: str
    """What the part stands for; of a reference, the reference itself."""
    name: str | None = None
    """The name in the braces, of a reference and of `$${NAME}`; None for any other part."""
    default: str | None = None
    """The default of a reference; None where it has none."""
    is_reference: bool = False


def parts(text: str) -> Iterator[TextPart]:
    """Yield the parts of a text with references, none of them empty; their `source` texts make up the whole text.

    An odd number of dollars before braces ends in a reference; of an even number, each two stand for one.
    """
    place = 0  # all text before this position has been yielded
    last_brace = text.rfind("}")
    for dollars in _DOLLARS_BEFORE_NAME.finditer(text):
        begin, end = dollars.span()
        if begin < place:  # in the default of a reference
            continue
        pairs, is_odd = len(dollars[0]) // 2, len(dollars[0]) % 2 == 1
        form = _REFERENCE_BRACES if is_odd else _LITERAL_BRACES
        # Behind the last brace, each match would search to the end of the text, in vain.
        braces = form.match(text, end) if end < last_brace else None
        if braces is None and not pairs:  # `${A` or `${A:x}`: the dollar stands for itself
            continue
        if begin > place:
            yield TextPart(source=text[place:begin], literal=text[place:begin])
        place = braces.end() if braces else end
        if braces and is_odd:  # `${A}`, or `$$${A}`: a dollar and a reference
            if pairs:
                yield TextPart(source="$$" * pairs, literal="$" * pairs)
            reference = text[end - 1 : place]
            name, default = braces["name"], braces["default"]
            yield TextPart(source=reference, literal=reference, name=name, default=default, is_reference=True)
        elif braces:  # `$${A}` stands for `${A}`
            yield TextPart(source=text[begin:place], literal="$" * pairs + braces[0], name=braces["name"])
        else:  # `$$${A`: each two dollars stand for one, and the last for itself
            yield TextPart(source=text[begin:place], literal="$" * pairs + "$" * is_odd)
    if place < len(text):
        yield TextPart(source=text[place:], literal=text[place:])


def refers(text: str) -> bool:
    """Return whether a text has a reference."""
    return any(part.is_reference for part in parts(text))


def escaped(literal: str) -> str:
    """Return a literal text, written as a text with references: `$${NAME}` for `${NAME}`."""
    return _DOLLARS_BEFORE_NAME.sub(lambda dollars: 2 * dollars[0], literal)


def joined(pieces: Iterable[tuple[str, bool]]) -> str:
    """Return a text with references, joined from pieces; the literals among them are escaped.

    `pieces`: each is a text, and whether it is a reference, such as `${A}`. All others are literals.
    """
    texts: list[str] = []
    # all literals since the last reference, joined before they are escaped: `$` and `{A}` together look like one
    literal = ""
    for piece, is_reference in pieces:
        if is_reference:
            # Dollars before a reference are doubled, too: `{_` stands for the braces of the reference.
            texts.append(escaped(literal + "{_").removesuffix("{_"))
            texts.append(piece)
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
        """Return the text that a part stands for, and call `missing` for a variable without a value."""
        if not part.is_reference or part.name is None:
            return part.literal
        if known := environ.get(part.name):
            return known
        if part.default is not None:
            return part.default
        missing(part.name)
        return part.source

    return "".join(map(value, parts(text)))


def looked_up(texts: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return name → value of the variables that texts refer to, as far as they are set."""
    names = {part.name for text in texts for part in parts(text) if part.is_reference and part.name}
    return {name: environ[name] for name in sorted(names) if environ.get(name)}


_BARE = re.compile(r"(?!=)[\w@%+=:,./-]+", re.ASCII)
"""A word that needs no quotes in any shell."""
_ESCAPES = {"\n": r"\n", "\t": r"\t", "\\": r"\\", "'": r"\x27", "!": r"\x21"}
"""How `$'…'` spells characters. It has no apostrophe inside, and nothing that the history of a shell replaces."""
_READ_ONLY = {"BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID"}
"""Variables that bash lets nobody assign; the program `env` sets them."""


def literal_word(text: str) -> str:
    """Return a text as one word of a shell command, from which the shell gets the text byte for byte.

    The word has no quotes if it needs none, usual quotes, or the form `$'…'` for unprintable characters. It has no line
    break.
    """
    if _BARE.fullmatch(text):
        return text
    if text.isprintable():
        return "'" + text.replace("'", "'\"'\"'") + "'"  # an apostrophe stands in quotes of its own
    return f"$'{''.join(map(_with_escape, text))}'"


def literal_line(words: Iterable[str]) -> str:
    """Return literal words as a command line for a shell."""
    return " ".join(map(literal_word, words))


def quoted(word: str) -> str:
    """Return a word of a study's command as it is stored and compared: in shell quotes where it needs them.

    The dollar and braces of a reference need no quotes: `--lr=${LR}` stays as it is.
    """
    without_references = "".join(part.source for part in parts(word) if part.name is None)  # also without `$${NAME}`
    has_references = len(without_references) < len(word)
    needs_no_quotes = without_references in {"", shlex.quote(without_references)}
    return word if has_references and needs_no_quotes else shlex.quote(word)


def shell_split(text: str) -> tuple[str, ...]:
    """Return the words of a study's command in shell quoting; a reference is never split.

    Raises ValueError for an unclosed quote.
    """
    pieces = list(parts(text))
    # While the text is split, a NUL stands for each part with a name: no file holds a NUL.
    words = shlex.split("".join("\0" if part.name else part.source for part in pieces))
    sources = (part.source for part in pieces if part.name)
    return tuple(re.sub("\0", lambda _: next(sources), word) for word in words)


def shell_word(text: str) -> str:
    """Return a text with references as one word of a shell script, which looks up the variables."""
    words = [_reference(part) if part.is_reference else literal_word(part.literal) for part in parts(text)]
    return "".join(words) or literal_word("")  # an empty word needs quotes


def shell_join(words: Iterable[str], variables: Mapping[str, str] | None = None) -> str:
    """Return texts with references as a command line for a shell, which sets `variables` for this command alone.

    A reference to one of `variables` has the value from before the line.
    """
    assigned = variables or {}
    line = [f"{name}={shell_word(text)}" for name, text in assigned.items()]
    set_before: set[str] = set()  # by the same line
    for name, text in assigned.items():
        # in `A=new B="$A" command`, bash gives `B` the value `new`, but the program `env` the old value
        if name in _READ_ONLY or any(part.is_reference and part.name in set_before for part in parts(text)):
            line.insert(0, "env")
            break
        set_before.add(name)
    return " ".join([*line, *map(shell_word, words)])


def _reference(part: TextPart) -> str:
    """Return a reference in double quotes, so that a shell does not split the value."""
    if part.default is None:
        return f'"{part.source}"'
    default = re.sub(r'[\\"`$]', r"\\\g<0>", part.default)
    # between double quotes, no escape stands for an apostrophe or an exclamation mark: printf writes its octal code
    default = re.sub("['!]", lambda match: rf"$(printf \\{ord(match[0]):03o})", default)
    return f'"${{{part.name}:-{default}}}"'


def _with_escape(character: str) -> str:
    r"""Return a character as `$'…'` spells it: itself, an escape such as `\n`, or its bytes, such as `\xff`."""
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(character))
