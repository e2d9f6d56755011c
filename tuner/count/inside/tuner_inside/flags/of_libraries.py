"""The options of click and typer, of absl, of tyro, and of Hydra and OmegaConf.

For each library, `listen_to_…` wraps the function that parses the command line. Functions before and after it
record the options, as `command_line.option` describes them.
"""

import sys

from tuner_inside.files import record_argv_is_read
from tuner_inside.flags.command_line import callers, described, is_argv, is_part, mark_typed, option, record_options
from tuner_inside.records import around

_click_contexts = []
"""The context of the command that parses the command line; empty before there is one."""


def listen_to_click(module):
    """Listen to the commands of click, or of the click inside typer."""
    around("flags", module.Command, "parse_args", _before_click, _after_click)


def _before_click(command, ctx, args, *_, **__):
    """Return the command and its context if it, or the group that it is in, parses the command line; else None."""
    root = ctx.find_root()
    if ctx is root and not ctx.resilient_parsing and is_argv(args):  # the shell's completion parses resiliently
        _click_contexts[:] = [root]
    return (command, ctx) if any(root is context for context in _click_contexts) else None


def _after_click(command_and_context, _):
    """Record the options of a command that has parsed its part of the command line."""
    command, ctx = command_and_context
    params = [param for param in command.params if param.param_type_name == "option"]
    record_options("click", described(_options_of_click, params, ctx))


def _options_of_click(param, ctx):
    """Return a parameter of click as a list with its option."""
    source = getattr(ctx.get_parameter_source(param.name), "name", None)
    if hasattr(param, "type_descriptor"):  # of a newer typer, which brings a click of its own
        choices = param.type_descriptor.choices
    else:
        choices = [getattr(choice, "name", choice) for choice in getattr(param.type, "choices", ())] or None
    may_lack_value = param.is_flag or param.count or getattr(param, "_flag_needs_value", False)
    value, is_typed = ctx.params.get(param.name), source == "COMMANDLINE"
    return [option(param.opts, value, may_lack_value, param.secondary_opts, choices, is_typed)]


def listen_to_absl(module):
    """Listen to the flags of absl."""
    around("flags", module.FlagValues, "__call__", _before_absl, _after_absl)


def _before_absl(flags, argv, *_, **__):
    """Return the flags if they are parsed from the command line; None otherwise."""
    if not isinstance(argv, (list, tuple)) or not argv:
        return None
    is_command_line = list(argv) == sys.argv or is_argv(argv[1:])  # the first word is the program
    return flags if is_command_line else None


def _after_absl(flags, leftover):
    """Record the script's flags; those of absl itself are left out."""
    script_flags = []
    for module, module_flags in flags.flags_by_module_dict().items():
        if not module.startswith("absl."):
            script_flags += module_flags
    record_options("absl", described(_options_of_absl, script_flags), leftover[1:])  # the first word is the program


def _options_of_absl(flag):
    """Return a flag as a list with its option."""
    names = ["--" + flag.name] + (["-" + flag.short_name] if flag.short_name else [])
    negatives = ["--no" + flag.name] if flag.boolean else []
    choices = getattr(flag.parser, "enum_values", None)
    return [option(names, flag.value, flag.boolean, negatives, choices, bool(flag.present))]


def listen_to_tyro(module):
    """Listen to the step of tyro that makes values of what it has parsed."""
    around("flags", module, "callable_with_args", _before_tyro_values)


def _before_tyro_values(_, spec, __, values, field_name_prefix=""):
    """Record the options, before tyro makes the script's values of the words that it has parsed.

    tyro reads `--batch_size` as `--batch-size`. So words are compared with hyphens, and both spellings count as typed.
    """
    caller = next(callers())
    if field_name_prefix or caller.f_code.co_name != "_cli_impl":  # the value of a part: the whole was recorded before
        return
    words = sys.argv[1:]
    dashed_words = [word.replace("_", "-") for word in words]
    parsed_words = [word.replace("_", "-") for word in caller.f_locals["args"]]
    if is_part(parsed_words, dashed_words):
        options = described(_options_of_tyro, _tyro_arguments(spec, values), values)
        for line in (words, dashed_words):
            mark_typed(options, line)
        record_options("tyro", options)


def _tyro_arguments(spec, values):
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
    return [*spec.args, *(argument for part in parts for argument in _tyro_arguments(part, values))]


def _options_of_tyro(argument, values):
    """Return a list with the option of an argument, and its value in force; an empty one for a positional argument.

    `values`: the name of each argument → its typed words, or a bool for a flag that stands alone. tyro has None or a
    marker of its own for an argument that is not typed: then the default is in force.
    """
    lowered, action = argument.lowered, str(argument.lowered.action).lower()
    names = lowered.name_or_flags if hasattr(lowered, "name_or_flags") else (lowered.name_or_flag,)
    if not names[0].startswith("-"):
        return []
    words = values.get(lowered.dest)
    if isinstance(words, (list, tuple)) and len(words) == 1:
        words = words[0]
    # a search varies single values, so of an argument with several words the default counts
    value = words if isinstance(words, (str, bool)) else argument.field.default
    # a flag that stands alone is stored as `store_true` or `store_false`, or it has a spelling `--no-…`, too, which is
    # stored as `boolean_optional_action` or as the class `BooleanOptionalAction`
    negatives = [_negative(name) for name in names if name.startswith("--") and "boolean" in action]
    may_lack_value = "store_" in action or bool(negatives)
    return [option(names, value, may_lack_value, negatives, lowered.choices)]


def _negative(name):
    """Return the spelling that switches a flag off: `--no-amp` for `--amp`, `--train.no-amp` for `--train.amp`."""
    head, dot, tail = name.rpartition(".")
    return head + ".no-" + tail if dot else "--no-" + name[2:]


_with_words = []
"""A pair of the configuration that has the command line's words in it, and these words; empty before there is one."""


def listen_to_hydra(module):
    """Listen to Hydra, which keeps its configuration once it is composed."""
    around("flags", module.HydraConfig, "set_config", _on_hydra_composed)


def listen_to_omegaconf(module):
    """Listen to configurations of OmegaConf that have words of the command line in them."""
    around("flags", module.OmegaConf, "from_dotlist", _before_read, _after_read)
    for name in ("merge", "unsafe_merge"):
        around("flags", module.OmegaConf, name, _before_merge, _after_merge)


def _on_hydra_composed(_, cfg, **__):
    _record_settings("hydra", cfg, [str(word) for word in cfg.hydra.overrides.task])


def _before_read(words):
    """Return the words of which OmegaConf makes a configuration if they are the command line; None otherwise."""
    return [str(word) for word in words] if is_argv(words) else None


def _after_read(words, config):
    """Remember the configuration that was made of the command line's words."""
    record_argv_is_read()
    _with_words[:] = [(config, words)]


def _before_merge(*configs):
    """Return the command line's words if one of the configurations that are merged has them in it; None otherwise."""
    return next((words for config, words in _with_words if any(config is part for part in configs)), None)


def _after_merge(words, config):
    """Record the settings of a merged configuration, and remember that the command line's words are in it now."""
    if isinstance(getattr(config, "_content", None), dict):
        _with_words[:] = [(config, words)]
        _record_settings("omegaconf", config, words)


def _record_settings(parser, config, words):
    """Record the settings of a configuration, and which of them `words` name. `train={…}` names all under `train.`."""
    # with a dot, so that `batch` is no beginning of `batches`; `+` adds a setting, `~` removes it
    typed_paths = tuple(word.split("=", 1)[0].lstrip("+~") + "." for word in words)
    leaves = [(path, value) for path, value in _settings(config) if not path.startswith("hydra.")]
    options = [option([path], value, typed=(path + ".").startswith(typed_paths)) for path, value in leaves]
    record_options(parser, options)


def _settings(config, prefix=""):
    """Yield path and value of each setting of an OmegaConf config; None for a list, and for a value to be resolved."""
    if not isinstance(config._content, dict):  # a group of settings that is missing, or None
        return
    for key, node in config._content.items():
        if hasattr(node, "items"):  # a group
            yield from _settings(node, "%s%s." % (prefix, key))
        elif node._is_none() or node._is_missing() or node._is_interpolation() or hasattr(node, "append"):
            yield prefix + str(key), None
        else:
            yield prefix + str(key), node._value()
