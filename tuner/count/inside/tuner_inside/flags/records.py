"""An option of a parser, as it is told: its spellings and the value in force."""

import os
from itertools import islice

MAX_CHOICES = 256
"""A longer list of choices is not told (chosen)."""


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
    choices = _plain_choices(choices)
    return {
        "names": list(names),
        "switch": bool(switch),
        "off": list(off),
        "choices": choices,
        "value": plain(value, choices),
        "typed": typed,
    }


def described(describe, things, *more):
    """Return the options of a parser's things. `describe(thing, *more)` returns a list with those of a thing.

    A thing that raises is left out: the library's next version may hold other things.
    """
    options = []
    for thing in things:
        try:
            options += describe(thing, *more)
        except Exception:
            continue
    return options


def plain(value, choices=None):
    """Return a value as a text, a number or a bool; None for anything else, and for a text that is too long to tell.

    Of an enumeration's member, the command line takes the name if that is among the choices, and the value if not.
    """
    if hasattr(type(value), "__members__"):  # an enumeration, without an import of `enum`
        return value.name if choices is not None and value.name in choices else plain(value.value)
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, str):
        return str(value) if len(value) <= 4000 else None  # characters (chosen)
    return value if type(value) in (bool, int, float) else None


def _plain_choices(choices):
    """Return choices as JSON has them; None where there are none, too many, or others than plain ones."""
    if not hasattr(choices, "__iter__"):
        return None
    plain_choices = [plain(choice) for choice in islice(choices, MAX_CHOICES + 1)]  # there may be endlessly many
    return plain_choices if len(plain_choices) <= MAX_CHOICES and None not in plain_choices else None
