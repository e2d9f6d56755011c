"""The options of click and typer."""

from tuner_inside.flags.command_line import is_own, tell_options
from tuner_inside.flags.options import each, option
from tuner_inside.tell import around

_own_root = []
"""The context of the command that parses the command line."""


def listen(module):
    """Listen to the commands of click, or of the click inside typer."""
    around("flags", module.Command, "parse_args", _begin, _done)


def _begin(command, ctx, args, *_, **__):
    root = ctx.find_root()
    if ctx is root and not ctx.resilient_parsing and is_own(args):
        _own_root[:] = [root]
    return (command, ctx) if any(root is own for own in _own_root) else None


def _done(parse, _):
    command, ctx = parse
    params = [param for param in command.params if param.param_type_name == "option"]
    tell_options("click", each(_of_param, params, ctx))


def _of_param(param, ctx):
    """Return a parameter of click as the one option that it is; `each` takes lists."""
    source = getattr(ctx.get_parameter_source(param.name), "name", None)
    if hasattr(param, "type_descriptor"):  # of a newer typer, which brings a click of its own
        choices = param.type_descriptor.choices
    else:
        choices = [getattr(choice, "name", choice) for choice in getattr(param.type, "choices", ())] or None
    may_lack_value = param.is_flag or param.count or getattr(param, "_flag_needs_value", False)
    value, typed = ctx.params.get(param.name), source == "COMMANDLINE"
    return [option(param.opts, value, may_lack_value, param.secondary_opts, choices, typed)]
