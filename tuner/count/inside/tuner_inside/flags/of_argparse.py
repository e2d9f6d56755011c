"""The options of argparse and of what is built on it, such as HfArgumentParser and jsonargparse.

A parser may call other parsers, which get a part of the words. So only the outermost parse, which no other parse has
called, can be that of the command line.
"""

import functools
import sys
from _thread import _local

from tuner_inside.flags.command_line import (
    calling_package,
    described,
    guard,
    is_argv,
    mark_typed,
    option,
    record_options,
)

SUPPRESS = "==SUPPRESS=="
"""The dest of an action without a value (argparse.SUPPRESS)."""


class _Running(_local):
    """The parses that run now in a thread, the outermost one first."""

    def __init__(self):
        self.parses = []


_running = _Running()


def listen(module):
    """Listen to the parsers of argparse."""
    for name in ("parse_known_args", "parse_known_intermixed_args"):
        _around_parser(module.ArgumentParser, name, lambda result: result)


def listen_to_jsonargparse(module):
    """Listen to the parsers of jsonargparse, which has parsers of argparse inside."""
    _around_parser(module.ArgumentParser, "parse_args", lambda result: (result, None))


def _around_parser(parser_class, name, values_and_leftover):
    """Wrap a method that parses, so that the options that it has parsed from the command line are recorded.

    Args:
        parser_class: the class of parsers.
        name: its method that parses.
        values_and_leftover: a function that makes a pair of the method's result: the values of the options, and the
            words that are left over, or None.
    """
    method = getattr(parser_class, name)

    @functools.wraps(method)
    def parse(self, args=None, *more, **kwargs):
        """Parse as without this wrapper, and record the options if they are those of the command line."""
        this_parse = guard(_Parse)(self, args)  # adds itself to `_running.parses`; None if our own code has failed
        try:
            result = method(self, args, *more, **kwargs)
        finally:
            if this_parse in _running.parses:
                _running.parses.remove(this_parse)
        if this_parse is not None and this_parse.is_of_command_line:
            guard(_record)(this_parse, *values_and_leftover(result))
        return result

    setattr(parser_class, name, parse)


class _Parse:
    """A call of a parser that runs now. Making one adds it to the `_running` parses."""

    def __init__(self, parser, args):
        """Note that a parser begins to parse `args`; None stands for the words of the command line."""
        self.parser = parser
        self.called_parsers = []
        """The parsers that run inside this parse, such as those of sub-commands."""
        # fire and hydra parse flags of their own with argparse before they parse the script's
        may_be_script = not _running.parses and calling_package() not in ("fire", "hydra")
        self.is_of_command_line = may_be_script and is_argv(args)
        if _running.parses:
            _running.parses[0].called_parsers.append(parser)
        _running.parses.append(self)


def _record(parse, values, leftover):
    """Record the values that a parse has given to the options, and keep the words that it has left over."""
    options = _options_of_parser(parse.parser, values, parse.called_parsers)
    mark_typed(options, sys.argv[1:])
    record_options("argparse", options, leftover)


def _options_of_parser(parser, values, called_parsers):
    """Return the options of a parser, and of the sub-parsers that it has called.

    An action that only switches another one off, such as `--no-amp` with the dest of `--amp`, is no option of its own.
    """
    actions = [action for action in parser._actions if action.option_strings]
    switch_dests = {action.dest for action in actions if _switches_on(action)}
    negatives_by_dest = {}
    kept = []
    for action in actions:
        if _switches_off(action) and action.dest in switch_dests:
            negatives_by_dest.setdefault(action.dest, []).extend(action.option_strings)
        else:
            kept.append(action)
    options = described(_options_of_action, kept, values, negatives_by_dest)

    for action in parser._actions:
        if action.option_strings or not isinstance(action.choices, dict):  # it chooses no sub-parser
            continue
        for name, subparser in action.choices.items():
            if any(subparser is called for called in called_parsers):
                own_values = _value_of(values, name)  # jsonargparse nests them, argparse does not
                if not hasattr(own_values, "__dict__"):
                    own_values = values
                options += _options_of_parser(subparser, own_values, called_parsers)
    return options


def _switches_on(action):
    return (action.nargs == 0 and action.const is not False) or (action.nargs == "?" and action.const is True)


def _switches_off(action):
    return action.nargs == 0 and action.const is False


def _options_of_action(action, values, negatives_by_dest):
    """Return a list with the option of an action; empty for an action that only asks for something, such as the help.

    `values` are those of all options. `negatives_by_dest`: a dest → the names of other actions that switch it off.
    """
    only_asks = any(part in type(action).__name__ for part in ("Help", "Version", "PrintConfig", "ConfigLoad"))
    if action.dest == SUPPRESS or only_asks:
        return []
    names = [name for name in action.option_strings if not name.endswith("+")]  # jsonargparse's `--list+` appends
    negatives = _negatives(action, names, negatives_by_dest)
    has_optional_value = action.nargs == "?" and action.const is not None
    may_lack_value = action.nargs == 0 or has_optional_value or bool(negatives)
    positives = [name for name in names if name not in negatives]
    # an option that can only be switched off has no other names to be known by
    return [option(positives or names, _value_of(values, action.dest), may_lack_value, negatives, action.choices)]


def _negatives(action, names, negatives_by_dest):
    """Return the names that switch an action's option off.

    - `--no-amp` alone only switches off: all its names do.
    - `--amp` with `--no-amp` in one action, as of BooleanOptionalAction: the second name does.
    - `--amp` beside an action `--no-amp` with the same dest: the names of that action do, by `negatives_by_dest`.
    """
    if _switches_off(action):
        return names
    may_lack_value = action.nargs in {0, "?"}
    second_names = [name for name in names if may_lack_value and _negates_another(name, names)]
    return second_names + negatives_by_dest.get(action.dest, [])


def _negates_another(name, names):
    """Return whether a name is another one with `no` before it: `--no-amp`, `--no_amp` or `--noamp` beside `--amp`."""
    bare_name = name.lstrip("-")
    bare_names = {spelling.lstrip("-") for spelling in names}
    return bare_name.startswith("no") and bare_name[2:].lstrip("-_") in bare_names


def _value_of(values, dest):
    """Return the value of a dest. That of `train.batch` may be the part `batch` of the part `train`."""
    if hasattr(values, dest):
        return getattr(values, dest)
    for part in dest.split("."):
        values = values.get(part) if isinstance(values, dict) else getattr(values, part, None)
    return values
