"""Finds out which parses are of the script's command line, and records their options: spellings and values in force."""

import os
import re
import sys
from itertools import islice

from tuner_inside.records import errors_switch_off, write_record

MAX_CHOICES = 256
"""A longer list of choices is not recorded (chosen)."""

guard = errors_switch_off("flags")
"""Wraps a function, so that an error in it ends the recording of flags, and not the training."""
_recorded = {"program": None, "parses": 0, "options": {}}
"""The program whose options were recorded, the number of its parses, and kind of parser → the options."""
_leftovers = []
"""The lists of words that parses of the command line have left."""


def callers():
    """Yield the frames of the code that uses a parser, the nearest first, without those of argparse and ours."""
    frame = sys._getframe(1)
    while frame is not None:
        if package(frame) not in ("argparse", "tuner_inside"):
            yield frame
        frame = frame.f_back


def package(frame):
    """Return the name of the package whose code a frame runs."""
    return str(frame.f_globals.get("__name__")).split(".", 1)[0]


def calling_package():
    """Return the name of the package that uses a parser."""
    return package(next(callers()))


def is_part(words, line):
    """Return whether `words` are a subsequence of `line`: all of them are in it, in the same order."""
    unread = iter(line)
    return all(word in unread for word in words)  # `in` reads on to the word, so the next search begins after it


def is_argv(words):
    """Return whether the words that a parser gets are those of the command line; None stands for those of `sys.argv`.

    A script may have removed words or added some. The words that another parse has left over count, too.
    """
    if _recorded["parses"] >= 50:  # chosen: a script that parses on and on is not followed any longer
        return False
    if words is None or any(words is leftover for leftover in _leftovers):
        return True
    if not isinstance(words, (list, tuple)):
        return False
    if not words:
        # this may be an empty command line: then one of the nearest callers mentions `argv`
        return any("argv" in frame.f_code.co_names for frame in islice(callers(), 4))
    line = sys.argv[1:]
    if is_part(words, line):  # the script has taken words away
        return True
    return bool(line) and is_part(line, words)  # the script has added words; an empty line is a part of anything


def record_options(parser, options, leftover=None):
    """Record the options that one kind of parser has parsed from the command line, in all its parses.

    An option replaces those of earlier parses that share a name with it. Without a change, nothing is recorded.

    Args:
        parser: the kind, such as `argparse`.
        options: what `option` has returned for each option of this parse.
        leftover: the words that the parse has not used, which another parser may get; None without any.
    """
    if isinstance(leftover, list):
        _leftovers.append(leftover)
    program = sys.argv[0] if sys.argv else ""
    if _recorded["program"] != program:  # the launcher in this process had a command line of its own
        _recorded.update(program=program, options={})
    names = {name for option in options for name in option["names"] + option["off"]}
    before = _recorded["options"].get(parser, [])
    kept = [option for option in before if not names.intersection(option["names"] + option["off"])]
    all_options = kept + [_without_secret(option) for option in options]
    _recorded["parses"] += 1
    if all_options != before:
        _recorded["options"][parser] = all_options
        write_record("flags", parser=parser, options=all_options)


def _without_secret(option):
    """Return an option, without a text that may be a key: by the option's name, or because it looks like one."""
    value = option["value"]
    if not isinstance(value, str):  # a number is a key only by a whole word, unlike that of `--max-tokens`
        last_word = re.split("[-_.]", option["names"][0].lower())[-1]
        is_long = last_word == "key" and len(str(value)) >= 8  # `--d-key 64` is a size (chosen)
        return dict(option, value=None) if is_long or last_word in ("secret", "password", "passwd") else option
    secret_words = ("key", "token", "secret", "passw", "credential", "auth")
    has_secret_name = any(word in option["names"][0].lower() for word in secret_words)
    # long (20 is chosen), and neither a sentence, a path, a list nor an address
    looks_like_key = len(value) >= 20 and not set(value) & set(" /.,=:")
    return dict(option, value=None) if has_secret_name or looks_like_key else option


def mark_typed(options, words):
    """Mark as typed the options that the words of a command line name.

    A word may be the name as in `--workers 4`, a shortened name as in `--work 4`, or a name with its value as in `-w4`.
    """
    by_name = {name: option for option in options for name in option["names"] + option["off"]}
    for word in words:
        typed_name = word.split("=", 1)[0]
        if typed_name.startswith("--") and typed_name not in by_name:  # shortened
            longer_names = [name for name in by_name if name.startswith(typed_name)]
            is_unambiguous = len({id(by_name[name]) for name in longer_names}) == 1
            typed_name = longer_names[0] if is_unambiguous else typed_name
        for name in (typed_name, typed_name[:2]):  # `-w4` is named `-w`
            if name in by_name:
                by_name[name]["typed"] = True


def option(names, value, may_lack_value=False, negatives=(), choices=None, typed=False):
    """Return a parser's option as a dictionary, as the tuner gets it.

    Args:
        names: its spellings, such as `--amp`.
        value: the value in force.
        may_lack_value: whether it may stand without a value.
        negatives: the spellings that switch it off, such as `--no-amp`.
        choices: the only values that it may have; None for any.
        typed: whether the command line names it.
    """
    choices = _plain_choices(choices)
    return {
        "names": list(names),
        "switch": bool(may_lack_value),
        "off": list(negatives),
        "choices": choices,
        "value": plain(value, choices),
        "typed": typed,
    }


def described(describe, things, *more):
    """Return the options of the flags, parameters or actions (`things`) of a parser's library.

    `describe(thing, *more)` returns a list with the options of one of them. A thing for which it raises an error is
    left out: another version of the library may have other things.
    """
    options = []
    for thing in things:
        try:
            options += describe(thing, *more)
        except Exception:
            continue
    return options


def plain(value, choices=None):
    """Return a value as a text, a number or a bool; None for anything else, and for a text that is too long.

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
