"""References to environment variables in texts: `${NAME}` and `${NAME:-default}`."""

import re
import shlex
from collections.abc import Callable, Mapping

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


def is_expansion(text: str, of: str) -> bool:
    """Return whether a text may be `of` with values in place of its references, of which there is at least one."""
    parts = REFERENCE.split(of)[:: 1 + REFERENCE.groups]
    pattern = ".*".join(map(re.escape, parts))
    return len(parts) > 1 and re.fullmatch(pattern, text, re.DOTALL) is not None


def shell_word(text: str) -> str:
    """Quote a text as one word of a shell script, which looks up the variables that the text refers to."""
    literals = [re.sub(r'[\\"`$]', r"\\\g<0>", part) for part in REFERENCE.split(text)[:: 1 + REFERENCE.groups]]
    references = [found[0] for found in REFERENCE.finditer(text)]
    if not references:
        return shlex.quote(text)
    return f'"{literals[0]}{"".join(map("".join, zip(references, literals[1:], strict=True)))}"'
