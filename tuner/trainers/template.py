"""Command lines with `{placeholders}`, written as for `str.format`: a literal brace is doubled."""

import re
from collections.abc import Iterable, Mapping, Sequence
from string import Formatter

_FLAG = re.compile(r"--?[A-Za-z][\w.-]*")
_NAMES_ITSELF = re.compile(r"-|[+~@\w.-]+=")
"""How a word begins that is no value of the flag before it: `--envs={num_envs}`, `env.num_envs={num_envs}`."""


def placeholders(words: Iterable[str]) -> frozenset[str]:
    """Return the names of the placeholders in `words`.

    Raises ValueError for a stray brace, and for anything but a name between braces.
    """
    return frozenset[str]().union(*map(_names, words))


def pieces(word: str) -> list[tuple[str, str | None]]:
    """Split a word into texts, each with the name of the placeholder after it; None where no placeholder follows.

    Raises the errors of `placeholders`.
    """
    fields = list(Formatter().parse(word))
    for _, name, spec, conversion in fields:
        if name is not None and (not name.isidentifier() or spec or conversion):
            raise ValueError(f"{word!r} holds a placeholder that is not a plain {{name}}; double a literal brace")
    return [(text, name) for text, name, _, _ in fields]


def fill(words: Sequence[str], values: Mapping[str, object]) -> tuple[str, ...]:
    """Replace the placeholders by their values. A word with a placeholder that has no value is left out.

    If such a word is the value of the flag before it, the flag is left out, too. So both words of `--envs {num_envs}`
    are left out. Of `--headless --envs={num_envs}` only the second word is left out.
    """
    kept: list[str] = []
    before = ""
    for word in words:
        if _names(word) <= values.keys():
            kept.append(word.format_map(values))
        elif _FLAG.fullmatch(before) and not _NAMES_ITSELF.match(word):
            kept.pop()
        before = word
    return tuple(kept)


def _names(word: str) -> set[str]:
    return {name for _, name in pieces(word) if name is not None}
