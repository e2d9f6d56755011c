"""The arguments of tyro."""

import sys

from tuner_inside.flags.command_line import callers, described, is_part, mark_typed, option, tell_options
from tuner_inside.tell import around


def listen(module):
    """Listen to the step of tyro that makes values of what it has parsed."""
    around("flags", module, "callable_with_args", _before_values)


def _before_values(_, spec, __, values, field_name_prefix=""):
    """Tell the options, before tyro makes the script's values of the words that it has parsed.

    tyro reads `--batch_size` as `--batch-size`, so both spellings are compared and marked.
    """
    caller = next(callers())
    if field_name_prefix or caller.f_code.co_name != "_cli_impl":  # the value of a part: the whole was told before
        return
    words = sys.argv[1:]
    dashed_words = [word.replace("_", "-") for word in words]
    parsed_words = [word.replace("_", "-") for word in caller.f_locals["args"]]
    if is_part(parsed_words, dashed_words):
        options = described(_options_of, _arguments(spec, values), values)
        for line in (words, dashed_words):
            mark_typed(options, line)
        tell_options("tyro", options)


def _arguments(spec, values):
    """Return all arguments that the command line may have: those of a parser, its nested parsers and sub-commands.

    Sub-commands count only if the user has chosen them.

    Args:
        spec: the parser, as tyro describes it.
        values: the name of each argument → its value, as tyro has parsed them. A group of sub-commands is an argument,
            too: its value is the name of the chosen one.
    """
    chosen_names = {value for value in values.values() if isinstance(value, str)}
    parts = list(spec.child_from_prefix.values())
    for group in spec.subparsers_from_intern_prefix.values():
        parts += [part for name, part in group.parser_from_name.items() if name in chosen_names]
    parts = [part.evaluate() if hasattr(part, "evaluate") else part for part in parts]  # a newer tyro is lazy
    return [*spec.args, *(argument for part in parts for argument in _arguments(part, values))]


def _options_of(argument, values):
    """Return a list with the option of an argument, and its value in force; an empty one for a positional argument.

    `values`: the name of each argument → its typed words, or a bool for a flag that stands alone. tyro has None or a
    marker of its own for an argument that is not typed: then the default is in force.
    """
    lowered, action = argument.lowered, str(argument.lowered.action)
    names = lowered.name_or_flags if hasattr(lowered, "name_or_flags") else (lowered.name_or_flag,)
    if not names[0].startswith("-"):
        return []
    words = values.get(lowered.dest)
    if isinstance(words, (list, tuple)) and len(words) == 1:
        words = words[0]
    value = words if isinstance(words, (str, bool)) else argument.field.default  # several words are no value to try
    # a flag that stands alone is stored as `store_true` or `store_false`, or it has a spelling `--no-…`, too, which is
    # told as `boolean_optional_action` or as the class `BooleanOptionalAction`
    off = [_negative(name) for name in names if name.startswith("--") and "oolean" in action]
    return [option(names, value, switch="store_" in action or bool(off), off=off, choices=lowered.choices)]


def _negative(name):
    """Return the spelling that switches a flag off: `--no-amp` for `--amp`, `--train.no-amp` for `--train.amp`."""
    head, dot, tail = name.rpartition(".")
    return head + ".no-" + tail if dot else "--no-" + name[2:]
