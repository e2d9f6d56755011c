"""Finds out which parses are of the script's command line, and tells their options."""

import sys
from itertools import islice

from tuner_inside.tell import guarded, tell

guard = guarded("flags")
_told = {"program": None, "parses": 0, "options": {}}
"""The program whose options were told, the number of its parses, and kind of parser → the options."""
_leftovers = []
"""The lists of words that parses of the command line have left."""
SECRET_WORDS = ("key", "token", "secret", "passw", "credential", "auth")
"""Parts of the names of options whose values are not told."""


def callers():
    """Yield the frames of the code that uses a parser, the nearest first."""
    frame = sys._getframe(1)
    while frame is not None:
        if package(frame) not in ("argparse", "tuner_inside"):  # these lie between a parser and the code that uses it
            yield frame
        frame = frame.f_back


def package(frame):
    """Return the name of the package whose code a frame runs."""
    return str(frame.f_globals.get("__name__")).split(".", 1)[0]


def calling_package():
    """Return the name of the package that uses a parser."""
    return package(next(callers()))


def is_part(words, line):
    """Return whether a line has some words, in their order."""
    unread = iter(line)
    return all(word in unread for word in words)  # `in` reads words up to the one that it finds


def is_argv(words):
    """Return whether words are the command line, with words added or taken away, or what another parse left of it."""
    if _told["parses"] >= 50:  # chosen: a script that parses on and on is not followed any longer
        return False
    if words is None or any(words is leftover for leftover in _leftovers):
        return True
    if not isinstance(words, (list, tuple)):
        return False
    line = sys.argv[1:]
    if words:
        return is_part(words, line) or (bool(line) and is_part(line, words))
    # no words may be an empty command line: then one of the nearest callers mentions `argv`
    return any("argv" in frame.f_code.co_names for frame in islice(callers(), 4))


def keep_leftover(words):
    """Remember the words that a parse of the command line has left: another parser may get them."""
    if isinstance(words, list):
        _leftovers.append(words)


def tell_options(parser, options):
    """Tell the options of all parses of the command line so far by one kind of parser.

    An option replaces the options of earlier parses that share a name with it.
    """
    program = sys.argv[0] if sys.argv else ""
    if _told["program"] != program:  # the launcher in this process had a command line of its own
        _told.update(program=program, options={})
    names = {name for option in options for name in option["names"] + option["off"]}
    before = _told["options"].get(parser, [])
    kept = [option for option in before if not names.intersection(option["names"] + option["off"])]
    options = kept + [_without_secret(option) for option in options]
    _told["parses"] += 1
    if options != before:
        _told["options"][parser] = options
        tell("flags", parser=parser, options=options)


def _without_secret(option):
    """Return an option, without its value if that may be a key: by the option's name, or because it looks so."""
    value = option["value"]
    is_named_so = any(word in option["names"][0].lower() for word in SECRET_WORDS)
    looks_so = isinstance(value, str) and len(value) >= 20 and not set(value) & set(" /.,=:")
    return dict(option, value=None) if is_named_so or looks_so else option


def mark_typed(options, words):
    """Mark the options that a command line names: `--workers 4`, shortened as `--work 4`, or `-w4` with its value."""
    by_name = {name: option for option in options for name in option["names"] + option["off"]}
    for word in words:
        typed_name = word.split("=", 1)[0]
        if typed_name.startswith("--") and typed_name not in by_name:
            longer = [name for name in by_name if name.startswith(typed_name)]
            is_unambiguous = len({id(by_name[name]) for name in longer}) == 1
            typed_name = longer[0] if is_unambiguous else typed_name
        for name in (typed_name, typed_name[:2]):
            if name in by_name:
                by_name[name]["typed"] = True
