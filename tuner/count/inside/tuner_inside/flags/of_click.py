"""The options of click and typer."""

from tuner_inside.flags.command_line import described, is_argv, option, tell_options
from tuner_inside.tell import around

_root_contexts = []
"""The context of the command that parses the command line; empty before there is one."""


def listen(module):
    """Listen to the commands of click, or of the click inside typer."""
    around("flags", module.Command, "parse_args", _before_parse, _after_parse)


def _before_parse(command, ctx, args, *_, **__):
    """Return the command and its context if the command, or the group that it is in, parses the command line.

    Return None otherwise.
    """
    root = ctx.find_root()
    if ctx is root and not ctx.resilient_parsing and is_argv(args):  # the shell's completion parses resiliently
        _root_contexts[:] = [root]
    return (command, ctx) if any(root is context for context in _root_contexts) else None


def _after_parse(command_and_context, _):
    """Tell the options of a command that has parsed its part of the command line."""
    command, ctx = command_and_context
    params = [param for param in command.params if param.param_type_name == "option"]
    tell_options("click", described(_options_of, params, ctx))


def _options_of(param, ctx):
    """Return a parameter of click as a list with its option."""
    source = getattr(ctx.get_parameter_source(param.name), "name", None)
    if hasattr(param, "type_descriptor"):  # of a newer typer, which brings a click of its own
        choices = param.type_descriptor.choices
    else:
        choices = [getattr(choice, "name", choice) for choice in getattr(param.type, "choices", ())] or None
    may_lack_value = param.is_flag or param.count or getattr(param, "_flag_needs_value", False)
    value, is_typed = ctx.params.get(param.name), source == "COMMANDLINE"
    return [option(param.opts, value, may_lack_value, param.secondary_opts, choices, is_typed)]
