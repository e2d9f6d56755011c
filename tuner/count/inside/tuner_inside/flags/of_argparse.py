"""The options of argparse and of what is built on it, such as HfArgumentParser and jsonargparse."""

import functools
import sys

from tuner_inside.flags.command_line import callers, guard, is_own, keep_leftover, mark_typed, package, tell_options
from tuner_inside.flags.records import each, option

SUPPRESS = "==SUPPRESS=="
"""The dest of an action without a value."""

_running = []
"""The parses that run now, the outermost one first."""


def listen(module):
    """Listen to the parsers of argparse."""
    for name in ("parse_known_args", "parse_known_intermixed_args"):
        _around_parser(module.ArgumentParser, name, lambda result: result)


def listen_to_jsonargparse(module):
    """Listen to the parsers of jsonargparse, which has parsers of argparse inside."""
    _around_parser(module.ArgumentParser, "parse_args", lambda result: (result, None))


def _around_parser(kind, name, parts):
    function = getattr(kind, name)

    @functools.wraps(function)
    def parse(self, args=None, *more, **kwargs):
        begun = guard(_Parse)(self, args)
        try:
            result = function(self, args, *more, **kwargs)
        finally:
            if begun in _running:
                del _running[_running.index(begun) :]
        if begun is not None and begun.is_own:
            guard(_tell)(begun, *parts(result))
        return result

    setattr(kind, name, parse)


class _Parse:
    """A parser at work, whether it parses the command line, and the parsers that it has called."""

    def __init__(self, parser, args):
        self.parser = parser
        self.inner = []
        # these packages parse flags of their own with argparse before they parse the script's
        self.is_own = not _running and package(next(callers())) not in ("fire", "hydra") and is_own(args)
        if _running:
            _running[0].inner.append(parser)
        _running.append(self)


def _tell(parse, values, leftover):
    keep_leftover(leftover)
    options = _of_parser(parse.parser, values, parse.inner)
    mark_typed(options, sys.argv[1:])
    tell_options("argparse", options)


def _of_parser(parser, values, inner):
    """Return the options of a parser, and of the sub-parsers that it has called."""
    actions = [action for action in parser._actions if action.option_strings]
    switches = {action.dest for action in actions if action.nargs == 0 and action.const is not False}
    off = {}
    for action in actions:
        if _is_off(action) and action.dest in switches:
            off.setdefault(action.dest, []).extend(action.option_strings)
    kept = [action for action in actions if not (_is_off(action) and action.dest in switches)]
    options = each(_of_action, kept, values, off)
    groups = [action.choices for action in parser._actions if not action.option_strings]
    for name, part in [item for group in groups if isinstance(group, dict) for item in group.items()]:
        if any(part is called for called in inner):
            own = _read(values, name)
            options += _of_parser(part, own if hasattr(own, "__dict__") else values, inner)
    return options


def _is_off(action):
    return action.nargs == 0 and action.const is False


def _of_action(action, values, off):
    """Return the option that an action is, as a list: empty for one that only asks, such as the help."""
    asking = ("Help", "Version", "PrintConfig", "ConfigLoad")  # parts of the names of actions that set nothing
    if action.dest == SUPPRESS or any(part in type(action).__name__ for part in asking):
        return []
    names = [name for name in action.option_strings if not name.endswith("+")]
    negative = [name for name in names if action.nargs in {0, "?"} and _is_negative(name, names)]
    negative += names if _is_off(action) else off.get(action.dest, [])
    switch = action.nargs == 0 or bool(negative) or (action.nargs == "?" and action.const is not None)
    positive = [name for name in names if name not in negative] or names
    return [option(positive, _read(values, action.dest), switch, negative, action.choices)]


def _is_negative(name, names):
    bare = name.lstrip("-")
    return bare.startswith("no") and bare[2:].lstrip("-_") in {known.lstrip("-") for known in names}


def _read(values, path):
    """Return the value of a dest, which may be dotted: that of an attribute, or of a part of it."""
    if hasattr(values, path):
        return getattr(values, path)
    for part in path.split("."):
        values = values.get(part) if isinstance(values, dict) else getattr(values, part, None)
    return values
