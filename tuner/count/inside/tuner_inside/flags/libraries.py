"""What absl, click and typer, tyro, OmegaConf and Hydra have parsed.

argparse, from which several parsers derive, has a file of its own.
"""

import sys

from tuner_inside.files import argv_is_read
from tuner_inside.flags.command_line import callers, is_own, is_part, keep_leftover, mark_typed, tell_options
from tuner_inside.flags.records import each, option
from tuner_inside.tell import around


def listen_to_absl(module):
    """Listen to the flags of absl."""
    around("flags", module.FlagValues, "__call__", _begin_absl, _read_absl)


def _begin_absl(flags, argv, *_, **__):
    has_words = isinstance(argv, (list, tuple)) and argv
    return flags if has_words and (list(argv) == sys.argv or is_own(argv[1:])) else None


def _read_absl(flags, result):
    keep_leftover(result[1:])
    modules = flags.flags_by_module_dict().items()
    tell_options(
        "absl", each(_of_absl_flag, [flag for module, held in modules if module[:5] != "absl." for flag in held])
    )


def _of_absl_flag(flag):
    names = ["--" + flag.name] + (["-" + flag.short_name] if flag.short_name else [])
    off, choices = ["--no" + flag.name] if flag.boolean else [], getattr(flag.parser, "enum_values", None)
    return [option(names, flag.value, flag.boolean, off, choices, bool(flag.present))]


_own_root = []
"""The context of the command that parses the command line."""


def listen_to_click(module):
    """Listen to the commands of click, or of the click inside typer."""
    around("flags", module.Command, "parse_args", _begin_click, _read_click)


def _begin_click(command, ctx, args, *_, **__):
    root = ctx.find_root()
    if ctx is root and not ctx.resilient_parsing and is_own(args):
        _own_root[:] = [root]
    return (command, ctx) if any(root is own for own in _own_root) else None


def _read_click(parse, _):
    command, ctx = parse
    params = [param for param in command.params if param.param_type_name == "option"]
    tell_options("click", each(_of_click_param, params, ctx))


def _of_click_param(param, ctx):
    """Return a parameter of click as the one option that it is; `each` takes lists."""
    source = getattr(ctx.get_parameter_source(param.name), "name", None)
    if hasattr(param, "type_descriptor"):  # of a newer typer, which brings a click of its own
        choices = param.type_descriptor.choices
    else:
        choices = [getattr(choice, "name", choice) for choice in getattr(param.type, "choices", ())] or None
    may_lack_value = param.is_flag or param.count or getattr(param, "_flag_needs_value", False)
    value, typed = ctx.params.get(param.name), source == "COMMANDLINE"
    return [option(param.opts, value, may_lack_value, param.secondary_opts, choices, typed)]


def listen_to_tyro(module):
    """Listen to the step of tyro that makes values of what it has parsed."""
    around("flags", module, "callable_with_args", _begin_tyro)


def _begin_tyro(_, spec, __, values, field_name_prefix=""):
    caller = next(callers())
    if field_name_prefix or caller.f_code.co_name != "_cli_impl":
        return
    words, dashed = sys.argv[1:], [word.replace("_", "-") for word in sys.argv[1:]]
    if is_part([word.replace("_", "-") for word in caller.f_locals["args"]], dashed):
        options = each(_of_tyro_argument, _tyro_arguments(spec, values), values)
        for line in (words, dashed):
            mark_typed(options, line)
        tell_options("tyro", options)


def _tyro_arguments(spec, values):
    """Return the arguments of a specification and of its parts, with those of the sub-commands that are chosen."""
    chosen = {value for value in values.values() if isinstance(value, str)}
    parts = list(spec.child_from_prefix.values())
    for group in spec.subparsers_from_intern_prefix.values():
        parts += [part for name, part in group.parser_from_name.items() if name in chosen]
    parts = [part.evaluate() if hasattr(part, "evaluate") else part for part in parts]
    return [*spec.args, *(argument for part in parts for argument in _tyro_arguments(part, values))]


def _of_tyro_argument(argument, values):
    lowered, action = argument.lowered, str(argument.lowered.action)
    names = lowered.name_or_flags if hasattr(lowered, "name_or_flags") else (lowered.name_or_flag,)
    if not names[0].startswith("-"):
        return []
    words = values.get(lowered.dest)
    if isinstance(words, (list, tuple)) and len(words) == 1:
        words = words[0]
    value = words if isinstance(words, (str, bool)) else argument.field.default
    off = [_negative(name) for name in names if name.startswith("--") and "oolean" in action]
    return [option(names, value, "store" in action or bool(off), off, lowered.choices)]


def _negative(name):
    head, dot, tail = name.rpartition(".")
    return head + ".no-" + tail if dot else "--no-" + name[2:]


_overrides = []
"""The configuration that has the command line's words in it, and these words."""


def listen_to_hydra(module):
    """Listen to Hydra, which has composed its configuration when it keeps it."""
    around("flags", module.HydraConfig, "set_config", _composed)


def listen_to_omegaconf(module):
    """Listen to configurations of OmegaConf that have words of the command line in them."""
    around("flags", module.OmegaConf, "from_dotlist", _words, _read_words)
    for name in ("merge", "unsafe_merge"):
        around("flags", module.OmegaConf, name, _words_in, _merged)


def _composed(_, cfg, **__):
    _tell_config("hydra", cfg, [str(word) for word in cfg.hydra.overrides.task])


def _words(words):
    return [str(word) for word in words] if is_own(words) else None


def _read_words(words, config):
    argv_is_read()
    _overrides[:] = [(config, words)]


def _words_in(*configs):
    return next((words for config, words in _overrides if any(config is part for part in configs)), None)


def _merged(words, config):
    if isinstance(getattr(config, "_content", None), dict):
        _overrides[:] = [(config, words)]
        _tell_config("omegaconf", config, words)


def _tell_config(parser, config, words):
    typed = tuple(word.split("=", 1)[0].lstrip("+~") + "." for word in words)
    options = [option([path], value) for path, value in _leaves(config) if not path.startswith("hydra.")]
    tell_options(parser, [dict(setting, typed=(setting["names"][0] + ".").startswith(typed)) for setting in options])


def _leaves(config, before=""):
    """Yield the path and the value of each setting. What a resolver may compute is not told."""
    for key, node in config._content.items() if isinstance(config._content, dict) else ():
        if hasattr(node, "items"):
            yield from _leaves(node, "%s%s." % (before, key))
        else:
            is_known = not (
                node._is_none() or node._is_missing() or node._is_interpolation() or hasattr(node, "append")
            )
            yield "%s%s" % (before, key), node._value() if is_known else None
