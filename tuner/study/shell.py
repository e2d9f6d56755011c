"""Writes and reads command lines in shell quoting: of literal words, and of texts with references such as `${LR}`."""

import os
import re
import shlex
from collections.abc import Iterable, Mapping

from tuner.study.variables import TextPart, parts

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
