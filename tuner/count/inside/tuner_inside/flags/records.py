"""An option of a parser, as it is told: its spellings and the value in force."""

import os
from itertools import islice

MAX_CHOICES = 256
"""A longer list of choices is not told."""


def option(names, value, switch=False, off=(), choices=None, typed=False):
    """Return an option.

    Args:
        names: its spellings.
        value: the value in force.
        switch: whether it may stand without a value.
        off: the spellings that switch it off.
        choices: its values, where it has only some.
        typed: whether the command line names it.
    """
    choices = named(choices)
    return {
        "names": list(names),
        "switch": bool(switch),
        "off": list(off),
        "choices": choices,
        "value": plain(value, choices),
        "typed": typed,
    }


def each(describe, things, *more):
    """Return the options of some things: `describe` returns a list. A thing that it cannot describe is left out."""
    options = []
    for thing in things:
        try:
            options += describe(thing, *more)
        except Exception:  # whatever the library's next version holds: the other options are told
            continue
    return options


def plain(value, choices=None):
    """Return a value as JSON has it, an enumeration's as the command line spells it; None for anything else."""
    if hasattr(type(value), "__members__"):
        return value.name if choices is not None and value.name in choices else plain(value.value)
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, str):
        return str(value) if len(value) <= 4000 else None
    return value if type(value) in (bool, int, float) else None


def named(choices):
    """Return a short list of choices as JSON has them; None where it is none."""
    if not hasattr(choices, "__iter__"):
        return None
    texts = [plain(choice) for choice in islice(choices, MAX_CHOICES + 1)]
    return texts if len(texts) <= MAX_CHOICES and None not in texts else None
