"""The flags of absl."""

import sys

from tuner_inside.flags.command_line import described, is_argv, option, tell_options
from tuner_inside.tell import around


def listen(module):
    """Listen to the flags of absl."""
    around("flags", module.FlagValues, "__call__", _before_parse, _after_parse)


def _before_parse(flags, argv, *_, **__):
    """Return the flags if they are parsed from the command line; None otherwise."""
    if not isinstance(argv, (list, tuple)) or not argv:
        return None
    is_command_line = list(argv) == sys.argv or is_argv(argv[1:])  # the first word is the program
    return flags if is_command_line else None


def _after_parse(flags, leftover):
    """Tell the script's flags; those of absl itself are left out."""
    script_flags = []
    for module, module_flags in flags.flags_by_module_dict().items():
        if not module.startswith("absl."):
            script_flags += module_flags
    tell_options("absl", described(_options_of, script_flags), leftover[1:])  # the first word is the program


def _options_of(flag):
    """Return a flag as a list with its option."""
    names = ["--" + flag.name] + (["-" + flag.short_name] if flag.short_name else [])
    off = ["--no" + flag.name] if flag.boolean else []
    choices = getattr(flag.parser, "enum_values", None)
    return [option(names, flag.value, flag.boolean, off, choices, bool(flag.present))]
