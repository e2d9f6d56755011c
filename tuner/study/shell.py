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
    """Return a text as one word of a shell command, from which the shell gets the text byte for byte.

    The word has no quotes where it needs none, usual quotes, or the form `$'…'` for characters that do not show. It has
    no line break.
    """
    if _BARE.fullmatch(text):
        return text
    if text.isprintable():
        return "'" + text.replace("'", "'\"'\"'") + "'"  # an apostrophe stands in quotes of its own
    return f"$'{''.join(map(_with_escape, text))}'"


def literal_line(words: Iterable[str]) -> str:
    """Return literal words as a command line for a shell. Different words give different lines."""
    return " ".join(map(literal_word, words))


def literal_words(line: str) -> list[str]:
    """Return the words of a line that `literal_line` has made, its inverse. Raises ValueError for an unclosed quote."""
    words: list[str] = []
    for match in _WORD.finditer(line):
        if match["stray"]:
            raise ValueError(f"no closing quotation: {line}")
        if match["usual"]:
            words += shlex.split(match["usual"])
        else:
            words.append(_without_escapes(match["escaped"]))
    return words


def quoted(word: str) -> str:
    """Return a word of a study's command as it is stored and compared: in quotes where it needs them.

    References to variables are not quoted: `--lr=${LR}` stays as it is.
    """
    beside_names = "".join(part.source for part in parts(word) if part.name is None)
    has_names = len(beside_names) < len(word)
    if has_names and (beside_names == "" or shlex.quote(beside_names) == beside_names):  # no quotes for all else
        return word
    return shlex.quote(word)


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
    pieces: list[str] = []
    for are_references, run in groupby(parts(text), key=lambda part: part.is_reference):
        if are_references:
            pieces += map(_reference, run)
        else:
            pieces.append(literal_word("".join(part.literal for part in run)))
    return "".join(pieces) or literal_word("")  # an empty word needs quotes


def shell_join(words: Iterable[str], variables: Mapping[str, str] | None = None) -> str:
    """Return texts with references as a command line for a shell, which sets `variables` for the command alone.

    References in the texts mean the variables as they are before the line.
    """
    assigned = variables or {}
    line = [f"{name}={shell_word(text)}" for name, text in assigned.items()]
    if _needs_env_program(assigned):
        line.insert(0, "env")
    command = [shell_word(text) for text in words]
    if command and (special := _SPECIAL.match(command[0])):  # only in quotes, a shell takes it for a program's name
        end = len(command[0]) if _BARE.fullmatch(command[0]) else special.end()
        command[0] = f"'{command[0][:end]}'{command[0][end:]}"  # what follows may have quotes of its own
    return " ".join([*line, *command])


def _needs_env_program(assigned: Mapping[str, str]) -> bool:
    """Return whether a command line must begin with the program `env`, which sets the variables in place of the shell.

    `assigned` maps each variable to its text, which may refer to others as `${A}`. A shell would set them wrongly
    where:

    - bash does not let a command set the variable, such as `UID`;
    - a text refers to a variable that the same line sets. In `A=new B="$A" command`, bash gives `B` the value `new`,
      but `B` must get the value that `A` had before the line.
    """
    set_before: set[str] = set()  # by the same line
    for name, text in assigned.items():
        if name in _SET_BY_BASH or any(part.is_reference and part.name in set_before for part in parts(text)):
            return True
        set_before.add(name)
    return False


def _reference(part: TextPart) -> str:
    """Return a reference in double quotes, so that a shell does not split the value."""
    if part.default is None:
        return f'"{part.source}"'
    runs = groupby(part.default, key=_is_unquotable)
    default = "".join(_in_default("".join(run), is_unquotable) for is_unquotable, run in runs)
    return f'"${{{part.name}:-{default}}}"'


def _is_unquotable(character: str) -> bool:
    """Return whether a character cannot stand in the default of a reference, not even behind a backslash.

    The whole reference stands in double quotes.
    """
    return character in "'!" or not (character.isprintable() or character == "\n")


def _in_default(text: str, is_unquotable: bool) -> str:
    """Return a part of a reference's default in a form that gives it back inside double quotes.

    Unquotable characters are printed by their bytes; others have a backslash where they need one.
    """
    if is_unquotable:
        octal = "".join(rf"\\{byte:03o}" for byte in os.fsencode(text))
        return f"$(printf {octal})"
    return re.sub(r'[\\"`$]', r"\\\g<0>", text)


def _with_escape(character: str) -> str:
    r"""Return a character as `$'…'` spells it: some by a letter, others that do not show by their bytes, as `\xff`."""
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
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
