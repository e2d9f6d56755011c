"""Keys in a text that nobody has named, such as a line that a trainer has printed: found by their known forms."""

import re

from tuner.study.variables import KEY_NAME, KEY_VARIABLE, MASKED

LEAST_CHARACTERS = 8
"""A shorter value after the name of a key is left as it is: `token: 50256`, `password: no`."""
_ISSUED = re.compile(
    r"(?<![\w-])(?:(?:hf|gh[opsur]|npm|[prs]k_(?:live|test))_(?:[A-Za-z0-9]{16,}|(?=[A-Za-z]*\d)[A-Za-z0-9]{8,})"
    r"|(?:[prs]k-|github_pat_|glpat-|xox[abeprs]-|pypi-|wandb_v1_|nvapi-|dckr_pat_)(?=[\w-]*\d)[\w-]{12,}"
    r"|A(?:KIA|SIA)[0-9A-Z]{16}|AIza[\w-]{30,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)"
)
"""What providers hand out. A name such as `hf_hub_download` has underscores where a key has none."""
_VALUE = r"[\w.+/=~!@#%^&*-]"
_NAMED = re.compile(
    rf"(?P<name>(?:(?i:{KEY_NAME})|(?<![A-Za-z0-9_]){KEY_VARIABLE})[\"']?(?:\s*[:=]\s*|\s+(?=[\"'])))"
    rf"(?:(?P<quote>[\"'])(?P<text>(?:(?!(?P=quote)).){{{LEAST_CHARACTERS},}}+)(?P=quote)"
    rf"|(?P<word>(?![/.~]){_VALUE}{{{LEAST_CHARACTERS},}}+)(?![(\[]))"
)
"""A value after its name, as `API_KEY=…`, `token: …` or `"password": "…"`; paths are no keys."""
_SCHEME = re.compile(
    rf"(?P<name>(?i:\bbearer|authorization[\"']?\s*[:=]\s*[\"']?\w+)\s+)(?P<word>{_VALUE}{{{LEAST_CHARACTERS},}}+)"
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
