"""Secret keys, such as passwords and tokens of APIs: found in a study's command, variables or printed lines.

A key is recognised by the name before it, such as `API_KEY=…`, or by the form in which its provider issues it. A study
can write a reference such as `${API_KEY}` instead.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from tuner.study.shell import refers

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
_NO_KEY_IN_URL = r"\$\{.*\}|\*+"
"""What is no key behind the user in a URL: a reference or a mask."""
_NO_KEY_IN_QUOTES = rf"{_NO_KEY_IN_URL}|[-+.,:/\deE]+"
"""What is no key in quotes: a reference, a mask, a number or a time."""
_NO_KEY_BARE = rf"{_NO_KEY_IN_QUOTES}|[A-Za-z]{{,15}}|(?=.*[._])[A-Za-z_]+(?:\.[A-Za-z_]+)*"
"""What is no key without quotes: also a short word, or the name of a variable."""
_MAY_HAVE_KEY = re.compile(
    "[sprk]k-|_(?:live|test|pat)_|hf_|gh[opsur]_|npm_|glpat-|xox|pypi-|wandb_v1_|nvapi-|akia|asia|aiza|eyj|@"
    "|key|secret|passw|pwd|passphrase|credential|token(?!s)|bearer|authorization"
)
"""A quick test in lower case: each text with a key has a match, so that most texts need no further search."""


def without_keys(text: str) -> str:
    """Return a text, such as a printed line, with `***` in place of each secret key."""
    if not _MAY_HAVE_KEY.search(text.lower()):
        return text
    text = _ISSUED.sub(MASKED, text)
    for form in (_NAMED, _SCHEME, _USER):
        text = form.sub(_masked_match, text)
    return text


def _masked_match(match: re.Match[str]) -> str:
    """Return a name and its value with `***` for the value, or unchanged if the value is no key.

    Without quotes, most words are no keys. In quotes a word may be a key, and in a URL even a number may be one. Only
    `_NAMED` has the groups `quote` and `text`, for a value in quotes.
    """
    groups = match.groupdict()
    quote = groups.get("quote") or ""
    value = groups.get("text") or groups["word"]
    no_key = _NO_KEY_IN_URL if match.re is _USER else _NO_KEY_IN_QUOTES if quote else _NO_KEY_BARE
    return match[0] if re.fullmatch(no_key, value) else f"{match['name']}{quote}{MASKED}{quote}"


_DIGEST = re.compile(r"[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64}")
"""A hexadecimal digest, which may be a key or name a version of the code."""
_VARIABLE = re.compile(
    r"(?P<before>(?:^|(?<=\s))(?P<name>[A-Za-z_]\w*)=)(?P<value>.*?)(?=\s[A-Za-z_]\w*=|$)", re.DOTALL
)
_SHELL_WORD = re.compile(r"(?:'[^']*'|\S)+")
"""A word of a line in shell quoting."""
_OPTION = re.compile(r"(?P<before>'?-*(?P<name>[A-Za-z][\w.-]*)=)(?P<value>.*)", re.DOTALL)


def literal_keys(words: Iterable[str], env: Mapping[str, str]) -> dict[str, str]:
    """Return the secret keys that a command and its variables spell out: name of the option or variable → the key."""
    named = [*((word.name, word.value) for word in _named_values(words)), *env.items()]
    return {
        name or "key": value
        for name, value in named
        if _is_key(name, value) or (_is_literal(value) and _DIGEST.fullmatch(value))
    }


def masked_trainer(fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trainer's fingerprint, which the study stores, with `MASKED` in place of secret keys."""
    masked = dict(fingerprint)
    if isinstance(command := masked.get("command"), str):
        words = _named_values(_SHELL_WORD.findall(command))
        masked["command"] = " ".join(word.before + _masked(word.name, word.value) for word in words)
    if isinstance(env := masked.get("env"), str):  # `A=1 B=2`
        masked["env"] = _VARIABLE.sub(lambda match: match["before"] + _masked(match["name"], match["value"]), env)
    return masked


def is_alike(stored: object, now: object) -> bool:
    """Return whether two values are equal, or equal texts but for words that are masked in the stored one.

    Earlier versions also masked short values about tokens, as of `--token-dim 64`.
    """
    if not isinstance(stored, str) or not isinstance(now, str):
        return stored == now
    return bool(re.fullmatch(r"\S+".join(map(re.escape, stored.split(MASKED))), now))


def with_references(line: str) -> str:
    """Return a line for a shell with a reference such as `"${API_KEY}"` in place of each key that it spells out."""
    words = list(_named_values(_SHELL_WORD.findall(line)))
    are_keys = [_is_key(word.name, word.value) for word in words]
    if not any(are_keys):
        return line
    return " ".join(
        # no reference works between the apostrophes that a word may begin with
        word.before.lstrip("'") + f'"{reference_to(word.name or "key")}"' if is_key else word.before + word.value
        for word, is_key in zip(words, are_keys, strict=True)
    )


def reference_to(name: str) -> str:
    """Return the reference with which a study should replace the key of an option or variable of this name."""
    return f"${{{re.sub(r'[^A-Za-z0-9_]', '_', name).upper()}}}"


def variables_without_keys(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that are no secret keys, which change nothing that is measured; none holds a password."""
    names = variables.keys() - literal_keys((), variables).keys()
    return {name: without_keys(variables[name]) for name in sorted(names) if not _is_name_of_key(name)}


def _masked(name: str, value: str) -> str:
    """Return a value without the keys in it: `MASKED` where all of it is a key."""
    return MASKED if _is_key(name, value) else without_keys(value)


def _is_key(name: str, value: str) -> bool:
    """Return whether a value spells out a key: by the name before it, or by the form in which its provider issues it.

    A short value about tokens, as of `--token-dim 64`, is no key.
    """
    is_short = len(value) < _LEAST_CHARACTERS and "token" in name.lower()
    return bool(_ISSUED.fullmatch(value)) or (_is_name_of_key(name) and _is_literal(value) and not is_short)


class _NamedValue(NamedTuple):
    """A word of a command line: its value, and the name of the option that has this value."""

    before: str
    """What stands before the value in the word."""
    name: str = ""
    """The option, in this word or in the one before; empty for a value without an option."""
    value: str = ""


def _named_values(words: Iterable[str]) -> Iterator[_NamedValue]:
    """Yield each word of a command line, divided into the name of an option and its value."""
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


def _is_name_of_key(name: str) -> bool:
    """Return whether an option or variable of this name usually has a secret key as its value."""
    return bool(re.search(_KEY_NAME, name, re.IGNORECASE) or re.fullmatch(_KEY_VARIABLE, name))


def _is_literal(text: str) -> bool:
    """Return whether a text spells out a value, and is no reference, placeholder or mask."""
    return bool(text) and not refers(text) and "{" not in text and text != MASKED
