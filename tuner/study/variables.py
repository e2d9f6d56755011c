"""The variables of a study: references to them (`${NAME}`, `${NAME:-default}`), and keys that stand as literals."""

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

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


MASKED = "***"
"""Stands for a literal key in everything that is stored."""
KEY_NAME = (
    r"(?<![A-Za-z])((api|access|secret|private|auth|license|service|account|encryption|wandb|openai|hf|aws|azure|ssh)"
    r"[-_ ]?key|secret|password|passwd|pwd|passphrase|credentials?|bearer"
    r"|(?<!pad[-_])(?<!eos[-_])(?<!bos[-_])(?<!unk[-_])(?<!sep[-_])(?<!cls[-_])"
    r"(?<!mask[-_])(?<!per[-_])(?<!image[-_])token)(?![A-Za-z])"
)
"""The name of something secret, in letters of any case; `max_tokens` and `pad_token` are none."""
_NAMED = re.compile(KEY_NAME, re.IGNORECASE)
KEY_VARIABLE = r"[A-Z][A-Z0-9_]*_KEY"
_VARIABLE_OF_KEY = re.compile(KEY_VARIABLE)
"""The name of a variable that holds a key. An option such as `--obs_key` usually names a column."""
_LOOKS_SO = re.compile(
    r"(sk|pk|rk|hf|gh[opsu]|glpat|xox[abp]|npm|pypi|wandb_v1|github_pat)[-_][\w-]{8,}"
    r"|AKIA[0-9A-Z]{16}|[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64}|eyJ[\w-]+\.[\w-]+\.[\w-]*"
)
"""What providers hand out: prefixes of their keys, hexadecimal digests, JSON web tokens."""
_VARIABLE = re.compile(
    r"(?P<before>(?:^|(?<=\s))(?P<name>[A-Za-z_]\w*)=)(?P<value>.*?)(?=\s[A-Za-z_]\w*=|$)", re.DOTALL
)
_TOKEN = re.compile(r"(?:'[^']*'|\S)+")
_OPTION = re.compile(r"(?P<before>'?-*(?P<name>[A-Za-z][\w.-]*)=)(?P<value>.*)", re.DOTALL)


def literal_keys(words: Iterable[str], env: Mapping[str, str]) -> dict[str, str]:
    """Return the literals that are keys by the name of their option or variable, or by their look: name → value."""
    named = [*((name, value) for _, name, value in _named(words)), *env.items()]
    found = [one for one in named if _is_literal(one[1]) and (_says_so(one[0]) or _LOOKS_SO.fullmatch(one[1]))]
    return {name or "key": text for name, text in found}


def masked_trainer(fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trainer's fingerprint with `MASKED` in place of literals whose names say that they are keys.

    Fingerprints of older versions have them unmasked, so both sides of a comparison are masked.
    """
    masks = {"command": _masked_command, "env": _masked_env}
    return {
        part: masks[part](text) if part in masks and isinstance(text, str) else text
        for part, text in fingerprint.items()
    }


def _masked_env(text: str) -> str:
    return _VARIABLE.sub(lambda found: found["before"] + _masked(found["name"], found["value"]), text)


def _masked_command(text: str) -> str:
    return " ".join(before + _masked(name, value) for before, name, value in _named(_TOKEN.findall(text)))


def _masked(name: str, value: str) -> str:
    return MASKED if _says_so(name) and _is_literal(value) else value


def _named(words: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Yield for each word what stands before its value, the name of the value, and the value."""
    name = ""
    for word in words:
        if found := _OPTION.fullmatch(word):
            yield found["before"], found["name"], found["value"]
            name = ""
        elif word.startswith("-"):
            yield word, "", ""
            name = word.lstrip("-")
        else:
            yield "", name, word
            name = ""


def _says_so(name: str) -> bool:
    return bool(_NAMED.search(name) or _VARIABLE_OF_KEY.fullmatch(name))


def _is_literal(text: str) -> bool:
    return bool(text) and not REFERENCE.search(text) and "{" not in text and text != MASKED
