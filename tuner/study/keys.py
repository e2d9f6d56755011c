"""Keys in words and variables of a study, and in a text such as a printed line: found by names and known forms."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from tuner.study.variables import refers

MASKED = "***"
"""Stands for a literal key in everything that is stored."""
_KEY_NAME = (
    r"(?<![A-Za-z])((api|access|secret|private|auth|license|service|account|encryption|wandb|openai|hf|aws|azure|ssh)"
    r"[-_ ]?key|secret|password|passwd|pwd|passphrase|credentials?|bearer"
    r"|(?<!pad[-_])(?<!eos[-_])(?<!bos[-_])(?<!unk[-_])(?<!sep[-_])(?<!cls[-_])"
    r"(?<!mask[-_])(?<!per[-_])(?<!image[-_])token)(?![A-Za-z])"
)
"""The name of something secret, in letters of any case; `max_tokens` and `pad_token` are none."""
_KEY_VARIABLE = r"[A-Z][A-Z0-9_]*_KEY"
"""The name of a variable that holds a key. An option such as `--obs_key` usually names a column."""
_LEAST_CHARACTERS = 8
"""A shorter value after the name of a key is left as it is: `token: 50256`, `password: no`."""
_ISSUED = re.compile(
    r"(?<![\w-])(?:(?:hf|gh[opsur]|npm|[prs]k_(?:live|test))_(?:[A-Za-z0-9]{16,}|(?=[A-Za-z]*\d)[A-Za-z0-9]{8,})"
    r"|(?:[prs]k-|github_pat_|glpat-|xox[abeprs]-|pypi-|wandb_v1_|nvapi-|dckr_pat_)(?=[\w-]*\d)[\w-]{12,}"
    r"|A(?:KIA|SIA)[0-9A-Z]{16}|AIza[\w-]{30,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)"
)
"""What providers hand out. A name such as `hf_hub_download` has underscores where a key has none."""
_VALUE = r"[\w.+/=~!@#%^&*-]"
_NAMED = re.compile(
    rf"(?P<name>(?:(?i:{_KEY_NAME})|(?<![A-Za-z0-9_]){_KEY_VARIABLE})[\"']?(?:\s*[:=]\s*|\s+(?=[\"'])))"
    rf"(?:(?P<quote>[\"'])(?P<text>(?:(?!(?P=quote)).){{{_LEAST_CHARACTERS},}}+)(?P=quote)"
    rf"|(?P<word>(?![/.~]){_VALUE}{{{_LEAST_CHARACTERS},}}+)(?![(\[]))"
)
"""A value after its name, as `API_KEY=…`, `token: …` or `"password": "…"`; paths are no keys."""
_SCHEME = re.compile(
    rf"(?P<name>(?i:\bbearer|authorization[\"']?\s*[:=]\s*[\"']?\w+)\s+)(?P<word>{_VALUE}{{{_LEAST_CHARACTERS},}}+)"
)
_USER = re.compile(r"(?P<name>\w://[^\s/:@]*:)(?P<word>[^\s/@]+)(?=@)")
"""The password in a URL."""
_KNOWN = r"\$\{.*\}|\*+"
"""A reference, or a mask."""
_NUMBER = rf"{_KNOWN}|[-+.,:/\deE]+"
"""Neither is a number or a time a key."""
_WORD = rf"{_NUMBER}|[A-Za-z]{{,15}}|(?=.*[._])[A-Za-z_]+(?:\.[A-Za-z_]+)*"
"""Without quotes, neither is a short word, or the name of a variable."""
_HINT = re.compile(
    "[sprk]k-|_(?:live|test|pat)_|hf_|gh[opsur]_|npm_|glpat-|xox|pypi-|wandb_v1_|nvapi-|akia|asia|aiza|eyj|@"
    "|key|secret|passw|pwd|passphrase|credential|token(?!s)|bearer|authorization"
)
"""What a text has, in lower case, that may hold a key; a text without is not looked at further."""


def without_keys(text: str) -> str:
    """Return a text with `***` in place of what has the form of a key, or stands behind the name of one."""
    if not _HINT.search(text.lower()):
        return text
    text = _ISSUED.sub(MASKED, text)
    for form in (_NAMED, _SCHEME, _USER):
        text = form.sub(_hidden, text)
    return text


def _hidden(match: re.Match[str]) -> str:
    """Return what stands in place of a match: the mask, or the text itself where it is no key."""
    parts = match.groupdict()
    quote, value = parts.get("quote") or "", parts.get("text") or parts["word"]
    usual = _KNOWN if match.re is _USER else _NUMBER if quote else _WORD
    return match[0] if re.fullmatch(usual, value) else f"{match['name']}{quote}{MASKED}{quote}"


_LOOKS_SO = re.compile(rf"{_ISSUED.pattern}|[0-9a-f]{{32}}|[0-9a-f]{{40}}|[0-9a-f]{{64}}")
"""What providers hand out, or a hexadecimal digest."""
_VARIABLE = re.compile(
    r"(?P<before>(?:^|(?<=\s))(?P<name>[A-Za-z_]\w*)=)(?P<value>.*?)(?=\s[A-Za-z_]\w*=|$)", re.DOTALL
)
_OPTION = re.compile(r"(?P<before>'?-*(?P<name>[A-Za-z][\w.-]*)=)(?P<value>.*)", re.DOTALL)


def literal_keys(words: Iterable[str], env: Mapping[str, str]) -> dict[str, str]:
    """Return the literals that are keys by the name of their option or variable, or by their look: name → value."""
    named = [*((own.name, own.value) for own in _named_values(words)), *env.items()]
    literals = ((name, value) for name, value in named if _is_literal(value))
    return {name or "key": value for name, value in literals if _says_so(name) or _LOOKS_SO.fullmatch(value)}


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
    return _VARIABLE.sub(lambda match: match["before"] + _masked(match["name"], match["value"]), text)


def _masked_command(text: str) -> str:
    words = re.findall(r"(?:'[^']*'|\S)+", text)
    return " ".join(f"{own.before}{_masked(own.name, own.value)}" for own in _named_values(words))


def _masked(name: str, value: str) -> str:
    """Return a value, masked where its name says that it is a key."""
    return MASKED if _says_so(name) and _is_literal(value) else value


class _NamedValue(NamedTuple):
    """A word of a command line as a value of its own or of the flag before it."""

    before: str
    """What stands before the value in the word."""
    name: str = ""
    value: str = ""


def _named_values(words: Iterable[str]) -> Iterator[_NamedValue]:
    """Yield each word of a command line with the name of its value."""
    name = ""
    for word in words:
        if match := _OPTION.fullmatch(word):
            yield _NamedValue(match["before"], match["name"], match["value"])
            name = ""
        elif word.startswith("-"):
            yield _NamedValue(word)
            name = word.lstrip("-")
        else:
            yield _NamedValue("", name, word)
            name = ""


def _says_so(name: str) -> bool:
    """Return whether a name is that of a key."""
    return bool(re.search(_KEY_NAME, name, re.IGNORECASE) or re.fullmatch(_KEY_VARIABLE, name))


def _is_literal(text: str) -> bool:
    """Return whether a text is a value itself, and no reference, placeholder or mask."""
    return bool(text) and not refers(text) and "{" not in text and text != MASKED
