"""Secret keys, such as passwords and tokens of APIs: found in a study's command, variables or printed lines.

A key is recognised by the name before it, such as `API_KEY=…`, or by the form in which its provider issues it. A study
can write a reference such as `${API_KEY}` instead.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from tuner.study.variables import refers

MASKED = "***"
"""What is stored in place of a literal key."""
_KEY_NAME = (
    r"(?<![A-Za-z])((api|access|secret|private|auth|license|service|account|encryption|wandb|openai|hf|aws|azure|ssh)"
    r"[-_ ]?key|secret|password|passwd|pwd|passphrase|credentials?|bearer"
    r"|(?<!pad[-_])(?<!eos[-_])(?<!bos[-_])(?<!unk[-_])(?<!sep[-_])(?<!cls[-_])"
    r"(?<!mask[-_])(?<!per[-_])(?<!image[-_])token)(?![A-Za-z])"
)
"""The name of something secret, in letters of any case; `max_tokens` and `pad_token` are not secret."""
_KEY_VARIABLE = r"[A-Z][A-Z0-9_]*_KEY"
"""The name of a variable that holds a key. An option such as `--obs_key` usually names a column."""
_LEAST_CHARACTERS = 8
"""A shorter value after the name of a key is left as it is: `token: 50256`, `password: no`."""
_ISSUED = re.compile(
    r"(?<![\w-])(?:(?:hf|gh[opsur]|npm|[prs]k_(?:live|test))_(?:[A-Za-z0-9]{16,}|(?=[A-Za-z]*\d)[A-Za-z0-9]{8,})"
    r"|(?:[prs]k-|github_pat_|glpat-|xox[abeprs]-|pypi-|wandb_v1_|nvapi-|dckr_pat_)(?=[\w-]*\d)[\w-]{12,}"
    r"|A(?:KIA|SIA)[0-9A-Z]{16}|AIza[\w-]{30,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)"
)
"""The keys of providers, by their prefixes. A name such as `hf_hub_download` has underscores where a key has none."""
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
_REFERENCE = r"\$\{.*\}|\*+"
"""A reference, or a mask: no key."""
_NUMBER = rf"{_REFERENCE}|[-+.,:/\deE]+"
"""A reference, a number or a time: no key in quotes."""
_WORD = rf"{_NUMBER}|[A-Za-z]{{,15}}|(?=.*[._])[A-Za-z_]+(?:\.[A-Za-z_]+)*"
"""These, a short word, or the name of a variable: no key without quotes."""
_HINT = re.compile(
    "[sprk]k-|_(?:live|test|pat)_|hf_|gh[opsur]_|npm_|glpat-|xox|pypi-|wandb_v1_|nvapi-|akia|asia|aiza|eyj|@"
    "|key|secret|passw|pwd|passphrase|credential|token(?!s)|bearer|authorization"
)
"""What each text with a key has, in lower case. It is found quickly, so most texts need no further search."""


def without_keys(text: str) -> str:
    """Return a text, such as a printed line, with `***` in place of each secret key."""
    if not _HINT.search(text.lower()):
        return text
    text = _ISSUED.sub(MASKED, text)
    for form in (_NAMED, _SCHEME, _USER):
        text = form.sub(_with_mask, text)
    return text


def _with_mask(match: re.Match[str]) -> str:
    """Return what stands in place of a name and its value: with `***` for the value, or unchanged if it is no key.

    A word, a number or a reference is no key. Only `_NAMED` has the groups `quote` and `text`: a value in quotes.
    """
    groups = match.groupdict()
    quote = groups.get("quote") or ""
    value = groups.get("text") or groups["word"]
    harmless = _NUMBER if quote else _WORD  # a word in quotes may be a key, one without quotes is usually none
    if match.re is _USER:  # the password in a URL may be a word or a number
        harmless = _REFERENCE
    if re.fullmatch(harmless, value):
        return match[0]
    return f"{match['name']}{quote}{MASKED}{quote}"


_KEY_FORM = re.compile(rf"{_ISSUED.pattern}|[0-9a-f]{{32}}|[0-9a-f]{{40}}|[0-9a-f]{{64}}")
"""What a key looks like: one of a provider, or a hexadecimal digest."""
_VARIABLE = re.compile(
    r"(?P<before>(?:^|(?<=\s))(?P<name>[A-Za-z_]\w*)=)(?P<value>.*?)(?=\s[A-Za-z_]\w*=|$)", re.DOTALL
)
_OPTION = re.compile(r"(?P<before>'?-*(?P<name>[A-Za-z][\w.-]*)=)(?P<value>.*)", re.DOTALL)


def literal_keys(words: Iterable[str], env: Mapping[str, str]) -> dict[str, str]:
    """Return name of an option or variable → its value, for those whose value is a secret key and no reference."""
    options = [(word.name, word.value) for word in _named_values(words)]
    keys: dict[str, str] = {}
    for name, value in [*options, *env.items()]:
        looks_like_key = _names_a_key(name) or _KEY_FORM.fullmatch(value)
        if looks_like_key and _is_literal(value):
            keys[name or "key"] = value
    return keys


def masked_trainer(fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a study stores about its trainer (its fingerprint), with `MASKED` in place of secret keys."""
    masked = dict(fingerprint)
    if isinstance(command := masked.get("command"), str):
        words = re.findall(r"(?:'[^']*'|\S)+", command)  # of a line in shell quoting
        masked["command"] = " ".join(f"{word.before}{_masked(word.name, word.value)}" for word in _named_values(words))
    if isinstance(env := masked.get("env"), str):  # `A=1 B=2`
        masked["env"] = _VARIABLE.sub(lambda match: match["before"] + _masked(match["name"], match["value"]), env)
    return masked


def _masked(name: str, value: str) -> str:
    """Return a value, or `MASKED` where its name says that it is a key."""
    return MASKED if _names_a_key(name) and _is_literal(value) else value


class _NamedValue(NamedTuple):
    """A word of a command line: its value, and the name of the option that has this value."""

    before: str
    """What stands before the value in the word."""
    name: str = ""
    """The option, in this word or in the one before; empty for a value without an option."""
    value: str = ""


def _named_values(words: Iterable[str]) -> Iterator[_NamedValue]:
    """Yield each word of a command line with the name of its value; by names such as `api-key`, secrets are found."""
    option_before = ""
    for word in words:
        match = _OPTION.fullmatch(word)
        if match:  # `--name=value`
            yield _NamedValue(match["before"], match["name"], match["value"])
            option_before = ""
        elif word.startswith("-"):  # `--name`, whose value may be the next word
            yield _NamedValue(word)
            option_before = word.lstrip("-")
        else:
            yield _NamedValue("", option_before, word)
            option_before = ""


def _names_a_key(name: str) -> bool:
    """Return whether a name is that of a key."""
    return bool(re.search(_KEY_NAME, name, re.IGNORECASE) or re.fullmatch(_KEY_VARIABLE, name))


def _is_literal(text: str) -> bool:
    """Return whether a text is a value itself, and no reference, placeholder or mask."""
    return bool(text) and not refers(text) and "{" not in text and text != MASKED
