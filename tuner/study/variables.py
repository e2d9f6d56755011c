"""References to environment variables in texts: `${NAME}` and `${NAME:-default}`."""

import re
import shlex
from collections.abc import Callable, Iterable, Mapping

REFERENCE = re.compile(r"\$\{(?P<name>[A-Za-z_]\w*)(?P<default>:-[^}]*)?\}")


def expanded(text: str, environ: Mapping[str, str], missing: Callable[[str], None] = lambda _: None) -> str:
    """Return the text with the value of each variable in place of its reference.

    A variable that is empty or not set has its default. Without a default the reference stays as it is, and `missing`
    is called with the variable's name.
    """

    def value(found: re.Match[str]) -> str:
        name, default = found["name"], found["default"]
        if environ.get(name):
            return environ[name]
        if default is None:
            missing(name)
            return found[0]
        return default.removeprefix(":-")

    return REFERENCE.sub(value, text)


def looked_up(texts: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that references in the texts look up: name → value."""
    names = {found["name"] for text in texts for found in REFERENCE.finditer(text)}
    return {name: environ[name] for name in sorted(names) if environ.get(name)}


def is_expansion(text: str, of: str) -> bool:
    """Return whether a text may be `of` with values in place of its references, of which there is at least one."""
    parts = REFERENCE.split(of)[:: 1 + REFERENCE.groups]
    pattern = ".*".join(map(re.escape, parts))
    return len(parts) > 1 and re.fullmatch(pattern, text, re.DOTALL) is not None


def quoted(word: str) -> str:
    """Quote a word as in a shell. References alone need no quotes, so `is_expansion` compares the result."""
    literal = REFERENCE.sub("", word)
    return word if literal != word and (not literal or shlex.quote(literal) == literal) else shlex.quote(word)


def shell_split(text: str) -> tuple[str, ...]:
    """Split a command line in shell quoting into its words. A reference is never split. Raises ValueError."""
    references = (found[0] for found in REFERENCE.finditer(text))
    words = shlex.split(REFERENCE.sub("\0", text))  # no study file holds a NUL
    return tuple(re.sub("\0", lambda _: next(references), word) for word in words)


def shell_join(words: Iterable[str]) -> str:
    """Return words as a command line for a shell, which looks up the variables that the words refer to."""
    return " ".join(map(shell_word, words))


def shell_word(text: str) -> str:
    """Quote a text as one word of a shell script, which looks up the variables that the text refers to."""
    literals = [re.sub(r'[\\"`$]', r"\\\g<0>", part) for part in REFERENCE.split(text)[:: 1 + REFERENCE.groups]]
    references = [found[0] for found in REFERENCE.finditer(text)]
    if not references:
        return shlex.quote(text)
    return f'"{literals[0]}{"".join(map("".join, zip(references, literals[1:], strict=True)))}"'
