"""Reads MimicKit's argument files by MimicKit's own rules."""

import re


def parse(text: str) -> dict[str, tuple[str, ...]]:
    """Return key → values, keys in the order of the file and without their dashes.

    The rules are those of `mimickit/util/arg_parser.py`:

    - Lines and words that start with `#` are ignored.
    - A word that starts with two dashes, and is longer, is a key; the words after it are its values.
    - The first occurrence of a key wins.
    - Words before the first key are ignored.
    """
    table: dict[str, list[str]] = {}
    values: list[str] = []
    for word in _words(text):
        if word.startswith("--") and len(word) > 2:
            values = []
            table.setdefault(word.removeprefix("--"), values)
        else:
            values.append(word)
    return {key: tuple(values) for key, values in table.items()}


def _words(text: str) -> list[str]:
    lines = [line for line in re.split(r"[\r\n]+", text) if not line.startswith("#")]
    return [word for line in lines for word in line.split() if not word.startswith("#")]
