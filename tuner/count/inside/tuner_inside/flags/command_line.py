"""Which parse is one of the script's command line, and what it tells."""

import sys
from itertools import islice

from tuner_inside.tell import guarded, tell

guard = guarded("flags")
_told = {"program": None, "parses": 0, "options": {}}
_leftovers = []


def callers():
    """Yield the frames of the code that uses a parser, the nearest first."""
    frame = sys._getframe(1)
    while frame is not None:
        if package(frame) not in ("argparse", "tuner_inside"):  # their functions lie between a parser and its user
            yield frame
        frame = frame.f_back


def package(frame):
    """Return the name of the package whose code a frame runs."""
    return str(frame.f_globals.get("__name__")).split(".", 1)[0]


def is_part(words, line):
    """Return whether a line has some words, in their order."""
    remaining = iter(line)
    return all(word in remaining for word in words)


def is_own(words):
    """Return whether words are the command line, with words added or taken away, or what another parse left of it."""
    if _told["parses"] >= 50:  # a script that parses more often is not looked at any longer
        return False
    if words is None or any(words is leftover for leftover in _leftovers):
        return True
    if not isinstance(words, (list, tuple)):
        return False
    line = sys.argv[1:]
    if words:
        return is_part(words, line) or (bool(line) and is_part(line, words))
    # where a parser that gets no words gets an empty command line, one of its nearest callers mentions `argv`
    return any("argv" in frame.f_code.co_names for frame in islice(callers(), 4))


def keep_leftover(words):
    """Remember the words that a parse of the command line has left: another parser may get them."""
    if isinstance(words, list):
        _leftovers.append(words)


def tell_options(parser, options):
    """Tell the options of all parses of the command line by one kind of parser; of equal names, the last one holds."""
    program = sys.argv[0] if sys.argv else ""
    if _told["program"] != program:  # the launcher in this process had a command line of its own
        _told.update(program=program, options={})
    names = {name for option in options for name in option["names"] + option["off"]}
    before = _told["options"].get(parser, [])
    kept = [option for option in before if not names.intersection(option["names"] + option["off"])]
    options = kept + [_masked(option) for option in options]
    _told["parses"] += 1
    if options != before:
        _told["options"][parser] = options
        tell("flags", parser=parser, options=options)


def _masked(option):
    """Return an option without its value, where its name or its value is that of a key."""
    value, secret = option["value"], ("key", "token", "secret", "passw", "credential", "auth")
    is_named = any(word in option["names"][0].lower() for word in secret)
    is_key = isinstance(value, str) and len(value) >= 20 and not set(value) & set(" /.,=:")
    return dict(option, value=None) if is_named or is_key else option


def mark_typed(options, words):
    """Mark the options that a command line names: `--workers 4`, shortened as `--work 4`, or `-w4` with its value."""
    by_name = {name: option for option in options for name in option["names"] + option["off"]}
    for word in words:
        name = word.split("=", 1)[0]
        if name.startswith("--") and name not in by_name:
            longer = [known for known in by_name if known.startswith(name)]
            is_of_one_option = len({id(by_name[known]) for known in longer}) == 1
            name = longer[0] if is_of_one_option else name
        for known in (name, name[:2]):
            if known in by_name:
                by_name[known]["typed"] = True
