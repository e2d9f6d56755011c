"""Command lines in shell quoting: a shell gets the bytes of what is literal, and looks up what is a reference."""

import os
import re
import shlex
from collections.abc import Iterable, Mapping
from itertools import groupby

from tuner.study.variables import TextPart, parts

_BARE = re.compile(r"(?!=)[\w@%+=:,./-]+", re.ASCII)
"""A word that needs no quotes in any shell."""
_ESCAPES = {"\n": r"\n", "\t": r"\t", "\\": r"\\", "'": r"\x27", "!": r"\x21"}
"""How `$'…'` spells characters. It has no apostrophe inside, and nothing that the history of a shell replaces."""
_ESCAPE = re.compile(r"\\(?:x(?P<byte>[0-9a-f]{2})|(?P<letter>[nt\\]))")
"""A character as `$'…'` spells it."""
_WORD = re.compile(r"""\$'(?P<escaped>(?:[^'\\]|\\.)*)'|(?P<usual>(?:[^\s'"]|'[^']*'|"[^"]*")+)|(?P<stray>\S)""")
"""A word of a line of `literal_line`, in either quoting, or a quote that is not closed."""
_SPECIAL = re.compile(
    r"(?:if|then|elif|else|fi|do|done|case|esac|while|until|for|select|function|time|coproc|in)$"
    r"|[A-Za-z_]\w*(?=\+?=)"
)
"""What a shell takes for its own syntax or for a variable where a program is named, unless it is quoted."""
_SET_BY_BASH = frozenset(
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
    return "'" + text.replace("'", "'\"'\"'") + "'" if text.isprintable() else f"$'{_with_escapes(text)}'"


def literal_line(words: Iterable[str]) -> str:
    """Return literal words as a command line for a shell. Different words give different lines."""
    return " ".join(map(literal_word, words))


def literal_words(line: str) -> list[str]:
    """Return the words of a line that `literal_line` has made, its inverse. Raises ValueError for an unclosed quote."""
    words: list[str] = []
    for match in _WORD.finditer(line):
        if match["stray"]:
            raise ValueError(f"no closing quotation: {line}")
        words += shlex.split(match["usual"]) if match["usual"] else [_without_escapes(match["escaped"])]
    return words


def quoted(word: str) -> str:
    """Return a word of a study's command in quotes where it needs them, as it is stored and compared.

    References need none, so that the result can be compared by `is_expansion`.
    """
    pieces = list(parts(word))
    literal = "".join(part.source for part in pieces if part.name is None)
    is_bare = len(literal) < len(word) and (not literal or shlex.quote(literal) == literal)
    return word if is_bare else shlex.quote(word)


def shell_split(text: str) -> tuple[str, ...]:
    """Return the words of a study's command in shell quoting; a reference is never split.

    Raises ValueError for an unclosed quote.
    """
    pieces = list(parts(text))
    names = (part.source for part in pieces if part.name is not None)
    words = shlex.split("".join(part.source if part.name is None else "\0" for part in pieces))  # no file holds a NUL
    return tuple(re.sub("\0", lambda _: next(names), word) for word in words)


def shell_word(text: str) -> str:
    """Return a text with references as one word of a shell script, which looks up the variables."""
    pieces: list[str] = []
    for are_references, run in groupby(parts(text), key=lambda part: part.is_reference):
        texts = [_reference(part) if are_references else part.literal for part in run]
        pieces += texts if are_references else [literal_word("".join(texts))]
    return "".join(pieces) or literal_word("")


def shell_join(words: Iterable[str], variables: Mapping[str, str] | None = None) -> str:
    """Return texts with references as a command line for a shell, with variables set before it.

    The shell looks up all variables as they are before the line. Where its own assignments would not do so, or would
    not set the variable, the line has the program `env`.
    """
    assigned, earlier, needs_env = variables or {}, set[str](), False
    for name, text in assigned.items():
        needs_env |= name in _SET_BY_BASH or any(part.is_reference and part.name in earlier for part in parts(text))
        earlier.add(name)
    line = [shell_word(text) for text in words]
    if line and (special := _SPECIAL.match(line[0])):
        end = len(line[0]) if _BARE.fullmatch(line[0]) else special.end()
        line[0] = f"'{line[0][:end]}'{line[0][end:]}"
    return " ".join([*["env"] * needs_env, *(f"{name}={shell_word(text)}" for name, text in assigned.items()), *line])


def _reference(part: TextPart) -> str:
    """Return a reference in double quotes, so that a shell does not split the value."""
    if part.default is None:
        return f'"{part.source}"'
    runs = groupby(part.default, key=_is_unquotable)
    default = "".join(_in_default("".join(run), is_unquotable) for is_unquotable, run in runs)
    return f'"${{{part.name}:-{default}}}"'


def _is_unquotable(character: str) -> bool:
    """Return whether the default of a reference in double quotes cannot have a character, even behind a backslash."""
    return character in "'!" or not (character.isprintable() or character == "\n")


def _in_default(text: str, is_unquotable: bool) -> str:
    """Return a part of a default as a shell reads it inside double quotes."""
    if is_unquotable:
        octal = "".join(rf"\\{byte:03o}" for byte in os.fsencode(text))
        return f"$(printf {octal})"
    return re.sub(r'[\\"`$]', r"\\\g<0>", text)


def _with_escapes(text: str) -> str:
    """Return a text as `$'…'` spells it between the apostrophes."""
    spelt = (_ESCAPES.get(char) or (char if char.isprintable() else _bytes(char)) for char in text)
    return "".join(spelt)


def _bytes(character: str) -> str:
    r"""Return the bytes of a character as `$'…'` spells them: `\xff`."""
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(character))


def _without_escapes(text: str) -> str:
    """Return the text that `$'…'` spells, given what stands between the apostrophes."""
    letters = {"n": b"\n", "t": b"\t", "\\": b"\\"}
    place, content = 0, b""
    for match in _ESCAPE.finditer(text):
        content += os.fsencode(text[place : match.start()])
        content += bytes.fromhex(match["byte"]) if match["byte"] else letters[match["letter"]]
        place = match.end()
    return os.fsdecode(content + os.fsencode(text[place:]))
