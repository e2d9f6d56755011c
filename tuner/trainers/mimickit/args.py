"""MimicKit's argument files, by its own rules."""

import re


def parse(text: str) -> dict[str, tuple[str, ...]]:
    """Give key → values, keys in the order of the file and without their dashes.

    The rules are those of `mimickit/util/arg_parser.py`: lines that start with `#` count for nothing, nor do words that
    do; a word longer than its two leading dashes opens a key, the words after it are its values; the first occurrence
    of a key wins; words before the first key belong to none.
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
