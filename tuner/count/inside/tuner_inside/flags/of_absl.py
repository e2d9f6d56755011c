"""The flags of absl."""

import sys

from tuner_inside.flags.command_line import is_own, keep_leftover, tell_options
from tuner_inside.flags.options import each, option
from tuner_inside.tell import around


def listen(module):
    """Listen to the flags of absl."""
    around("flags", module.FlagValues, "__call__", _begin, _done)


def _begin(flags, argv, *_, **__):
    has_words = isinstance(argv, (list, tuple)) and argv
    return flags if has_words and (list(argv) == sys.argv or is_own(argv[1:])) else None


def _done(flags, result):
    keep_leftover(result[1:])
    modules = flags.flags_by_module_dict().items()
    tell_options("absl", each(_of_flag, [flag for module, held in modules if module[:5] != "absl." for flag in held]))


def _of_flag(flag):
    names = ["--" + flag.name] + (["-" + flag.short_name] if flag.short_name else [])
    off, choices = ["--no" + flag.name] if flag.boolean else [], getattr(flag.parser, "enum_values", None)
    return [option(names, flag.value, flag.boolean, off, choices, bool(flag.present))]
