"""Command lines in shell quoting: a shell gets the bytes of what is literal, and looks up what is a reference."""

import os
import re
import shlex
from collections.abc import Iterable, Mapping
from itertools import groupby

from tuner.study.variables import TextPart, parts

_BARE = re.compile(r"(?!=)[\w@%+=:,./-]+", re.ASCII)
"""A word that needs no quotes in any shell."""
_NAMED = {"\n": r"\n", "\t": r"\t", "\\": r"\\", "'": r"\x27", "!": r"\x21"}
"""How `$'…'` spells characters. It has no apostrophe inside, and nothing that the history of a shell replaces."""
_SPELT = re.compile(r"\\(?:x(?P<byte>[0-9a-f]{2})|(?P<letter>[nt\\]))")
_WORD = re.compile(r"""\$'(?P<spelt>(?:[^'\\]|\\.)*)'|(?P<usual>(?:[^\s'"]|'[^']*'|"[^"]*")+)|(?P<stray>\S)""")
_SPECIAL = re.compile(
    r"(?:if|then|elif|else|fi|do|done|case|esac|while|until|for|select|function|time|coproc|in)$"
    r"|[A-Za-z_]\w*(?=\+?=)"
)
"""What a shell takes for its own syntax or for a variable where a program is named, unless it is quoted."""
_OWN = frozenset(
    (
        *("UID", "EUID", "PPID", "GROUPS", "BASHOPTS", "SHELLOPTS", "BASHPID", "BASH_VERSINFO", "DIRSTACK", "FUNCNAME"),
        *("HISTCMD", "LINENO", "RANDOM", "SECONDS", "SRANDOM", "EPOCHSECONDS", "EPOCHREALTIME", "_"),
    )
)
"""Variables that bash sets itself, or refuses to set."""


def literal_word(text: str) -> str:
    """Return a literal as one word of a shell: bare, in quotes, or as `$'…'` where a character does not show.

    The word has one line, and a shell gets the text byte for byte.
    """
    if _BARE.fullmatch(text):
        return text
    return "'" + text.replace("'", "'\"'\"'") + "'" if text.isprintable() else f"$'{_spelt(text)}'"


def literal_line(words: Iterable[str]) -> str:
    """Return literal words as a command line for a shell. Different words give different lines."""
    return " ".join(map(literal_word, words))


def literal_words(line: str) -> list[str]:
    """Return the words of a line that `literal_line` has made, its inverse. Raises ValueError for an unclosed quote."""
    words: list[str] = []
    for match in _WORD.finditer(line):
        if match["stray"]:
            raise ValueError(f"no closing quotation: {line}")
        words += shlex.split(match["usual"]) if match["usual"] else [_unspelt(match["spelt"])]
    return words


def quoted(word: str) -> str:
    """Quote a word of a study's command. References alone need no quotes, so `is_expansion` compares the result."""
    pieces = list(parts(word))
    literal = "".join(part.source for part in pieces if part.name is None)
    is_bare = len(literal) < len(word) and (not literal or shlex.quote(literal) == literal)
    return word if is_bare else shlex.quote(word)


def shell_split(text: str) -> tuple[str, ...]:
    """Split a study's command in shell quoting into its words. A reference is never split. Raises ValueError."""
    pieces = list(parts(text))
    names = (part.source for part in pieces if part.name is not None)
    words = shlex.split("".join(part.source if part.name is None else "\0" for part in pieces))  # no file holds a NUL
    return tuple(re.sub("\0", lambda _: next(names), word) for word in words)


def shell_word(text: str) -> str:
    """Return a text with references as one word of a shell script, which looks up the variables."""
    grouped = groupby(parts(text), key=lambda part: part.is_reference)
    words = [
        "".join(map(_reference, some)) if refer else literal_word("".join(part.literal for part in some))
        for refer, some in grouped
    ]
    return "".join(words) or literal_word("")


def shell_join(words: Iterable[str], variables: Mapping[str, str] | None = None) -> str:
    """Return texts with references as a command line for a shell, with variables set before it.

    The shell looks up all variables as they are before the line. Where its own assignments would not do so, or would
    not set the variable, the line has the program `env`.
    """
    own, earlier, needs_env = variables or {}, set[str](), False
    for name, text in own.items():
        needs_env |= name in _OWN or any(part.is_reference and part.name in earlier for part in parts(text))
        earlier.add(name)
    line = [shell_word(text) for text in words]
    if line and (special := _SPECIAL.match(line[0])):
        end = len(line[0]) if _BARE.fullmatch(line[0]) else special.end()
        line[0] = f"'{line[0][:end]}'{line[0][end:]}"
    return " ".join([*["env"] * needs_env, *(f"{name}={shell_word(text)}" for name, text in own.items()), *line])


def _reference(part: TextPart) -> str:
    if part.default is None:
        return f'"{part.source}"'
    default = "".join(_in_default("".join(some), alone) for alone, some in groupby(part.default, key=_is_unquotable))
    return f'"${{{part.name}:-{default}}}"'


def _is_unquotable(character: str) -> bool:
    """Return whether the default of a reference in double quotes cannot have a character, even behind a backslash."""
    return character in "'!" or not (character.isprintable() or character == "\n")


def _in_default(text: str, is_unquotable: bool) -> str:
    if is_unquotable:
        octal = "".join(rf"\\{byte:03o}" for byte in os.fsencode(text))
        return f"$(printf {octal})"
    return re.sub(r'[\\"`$]', r"\\\g<0>", text)


def _spelt(text: str) -> str:
    """Return a text as `$'…'` spells it between the apostrophes."""
    return "".join(
        _NAMED.get(character) or (character if character.isprintable() else _bytes(character)) for character in text
    )


def _bytes(character: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(character))


def _unspelt(text: str) -> str:
    """Return the text that `$'…'` spells, given what stands between the apostrophes."""
    letters = {"n": b"\n", "t": b"\t", "\\": b"\\"}
    place, content = 0, b""
    for match in _SPELT.finditer(text):
        content += os.fsencode(text[place : match.start()])
        content += bytes.fromhex(match["byte"]) if match["byte"] else letters[match["letter"]]
        place = match.end()
    return os.fsdecode(content + os.fsencode(text[place:]))
