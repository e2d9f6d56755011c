"""Tells whether the shell script of a command passes on the flags that `tuner init` adds. Pure, but for the script."""

import re
from collections.abc import Sequence
from pathlib import Path, PurePath

_SHELLS = {"sh", "bash", "zsh", "dash"}
_READS_WORDS = re.compile(r"\$[@*#]|\$\{[@*#]|\bgetopts?\b|\bshift\b")
"""How a script reads words that it does not know by their place."""


def deaf_script(words: Sequence[str]) -> str | None:
    """Return the shell script that a command starts, if it reads no flags, so that added flags would change nothing.

    Returns None for a script that cannot be read.
    """
    first = PurePath(words[0]).name
    place = next((at for at, word in enumerate(words[1:], 1) if not word.startswith("-")), 0) if first in _SHELLS else 0
    script = words[place]
    if first not in _SHELLS and PurePath(script).suffix != ".sh":
        return None
    try:
        text = Path(script).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return None if _READS_WORDS.search(text) else script
