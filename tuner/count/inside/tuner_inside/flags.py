"""Tells which flags the script has parsed from its command line, and which values are in force.

Each parser stays as it is until the script itself has imported it. What a parser gets that is not the command line, or
what an earlier parse left of it, holds none of the script's flags.
"""

import functools
import math
import os
import sys
from _thread import _local
from itertools import islice

from tuner_inside.files import argv_is_read, is_spawned
from tuner_inside.imports import when_imported
from tuner_inside.tell import guarded, tell

MAX_PARSES = 50
"""A script that parses its command line more often is not looked at any longer."""
MAX_HELP = 200
"""Characters of a flag's help."""
MAX_LIST = 256
"""A longer list of values or choices is not told."""
MAX_TEXT = 4000
"""Characters; a longer text is not told."""
MAX_HOPS = 8
"""So far an interpolation of an interpolation … is followed."""
MAX_RESTS = 8
"""So many leftovers of earlier parses are known again."""
CALLERS = 4
"""One of so many callers mentions `argv`, where a parser that gets no words gets an empty command line."""
PASSING = ("argparse", "tuner_inside")
"""Packages whose own functions lie between a parser and the code that uses it."""
LIBRARIES = ("fire", "hydra")
"""Packages that parse flags of their own with argparse before they parse the script's."""
SCALARS = (bool, int, float, str)
"""The types that a value may have."""
SECRET = ("key", "token", "secret", "passw", "credential", "auth")
"""Parts of the names of flags whose values are not told."""
LEAST_KEY = 20
"""A text of so many characters without a space, a path or a point may be a key."""
KINDS = {"text": "str", "string": "str", "enum": "str", "string enum": "str", "choice": "str", "boolean": "bool"}
KINDS.update({"integer": "int", "integer range": "int", "float range": "float"})
KINDS.update({"IntegerNode": "int", "FloatNode": "float", "BooleanNode": "bool", "StringNode": "str"})
"""Names of types in click, absl and OmegaConf → Python's."""
ASKING = ("Help", "Version", "PrintConfig", "ConfigLoad")
"""Parts of the names of argparse's actions that set nothing."""
SUPPRESS = "==SUPPRESS=="
"""In argparse: no value, no help."""
NO_HELP = (SUPPRESS, "_EMPTY_HELP", "<__TEMP__>")
"""How the texts of argparse, jsonargparse and simple_parsing begin that are no help."""

_guard = guarded("flags")
_threads = _local()
_told = {"program": None, "parses": 0, "options": {}}
_rests = []
_click_root = []
_overrides = []


def install():
    """Listen to the parsers that the script imports. A process that `multiprocessing` starts tells nothing."""
    if is_spawned():
        return
    for module, patch in (
        ("argparse", _patch_argparse),
        ("jsonargparse", _patch_jsonargparse),
        ("draccus.argparsing", _patch_dataclasses),
        ("pyrallis.argparsing", _patch_dataclasses),
        ("click.core", _patch_click),
        ("typer._click.core", _patch_click),
        ("absl.flags", _patch_absl),
        ("tyro._calling", _patch_tyro),
        ("hydra.core.hydra_config", _patch_hydra),
        ("omegaconf", _patch_omegaconf),
        ("fire.core", _patch_fire),
    ):
        when_imported(module, _guard(patch))


# Which parse is of the command line ----------------------------------------------------------------------------------


def _callers():
    """Yield the frames of the code that uses a parser, the nearest first."""
    frame = sys._getframe(1)
    while frame is not None:
        if _package(frame) not in PASSING:
            yield frame
        frame = frame.f_back


def _package(frame):
    return str(frame.f_globals.get("__name__")).split(".", 1)[0]


def _is_part(words, line):
    remaining = iter(line)
    return all(word in remaining for word in words)


def _is_own(words):
    """Return whether words are the command line, with words added or taken away, or what another parse left of it."""
    if _told["parses"] >= MAX_PARSES:
        return False
    if words is None or any(words is rest for rest in _rests):
        return True
    if not isinstance(words, (list, tuple)):
        return False
    line = sys.argv[1:]
    if words:
        return _is_part(words, line) or (bool(line) and _is_part(line, words))
    return any("argv" in frame.f_code.co_names for frame in islice(_callers(), CALLERS))


def _keep_rest(rest):
    if isinstance(rest, list):
        _rests.append(rest)
        del _rests[:-MAX_RESTS]


def _tell(parser, prog, options):
    """Tell the options of all parses of the command line by one kind of parser; of equal names, the last one holds."""
    program = sys.argv[0] if sys.argv else ""
    if _told["program"] != program:  # the launcher in this process had a command line of its own
        _told.update(program=program, options={})
    options = [_masked(option) for option in options]
    names = {name for option in options for name in option["names"] + option["off"]}
    before = _told["options"].get(parser, [])
    options = [option for option in before if not names.intersection(option["names"] + option["off"])] + options
    _told["parses"] += 1
    if options != before:
        _told["options"][parser] = options
        tell("flags", parser=parser, prog=prog or os.path.basename(program), options=options)


def _masked(option):
    """Return an option without its value, where its name or its value is that of a key."""
    named = any(word in option["dest"].lower() for word in SECRET)
    texts = [text for text in (option["value"], option["default"]) if isinstance(text, str)]
    if named or any(len(text) >= LEAST_KEY and not set(text) & set(" /.,=:") for text in texts):
        return dict(option, value=None, default=None)
    return option


def _around(owner, name, begins, done=None):
    """Show a function's arguments to `begins`, and what this returns to `done`, with the function's own result."""
    function = getattr(owner, name, None)
    if function is None:
        return

    @functools.wraps(function)
    def call(*args, **kwargs):
        parse = begins(*args, **kwargs)
        try:
            result = function(*args, **kwargs)
        finally:
            if isinstance(parse, _Parse):
                parse.leave()
        if done and parse is not None:
            done(parse, result)
        return result

    setattr(owner, name, staticmethod(call) if isinstance(vars(owner)[name], staticmethod) else call)


# What an option is ---------------------------------------------------------------------------------------------------


def _option(names, dest, kind, value, default, switch=False, off=(), choices=None, typed=False, text=None):
    return {
        "names": list(names),
        "dest": dest,
        "kind": kind,
        "switch": bool(switch),
        "off": list(off),
        "choices": choices,
        "default": default,
        "value": value,
        "typed": typed,
        "help": " ".join(text.split())[:MAX_HELP] if isinstance(text, str) and not text.startswith(NO_HELP) else None,
    }


def _each(describe, things, *more):
    """Return the options of some things: `describe` returns a list. A thing that it cannot describe is left out."""
    options = []
    for thing in things:
        try:
            options += describe(thing, *more)
        except Exception:  # whatever the library's next version holds: the other options are told
            continue
    return options


def _plain(value, choices=None):
    """Return a value as JSON has it, an enumeration's as the command line spells it; None where JSON has none."""
    if hasattr(type(value), "__members__"):
        return value.name if choices is not None and value.name in choices else _plain(value.value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (list, tuple)):
        return _list(value, choices)
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value if isinstance(value, str) and len(value) <= MAX_TEXT else None


def _list(items, choices=None):
    """Return the scalars of a short list, or None where it is none."""
    if not hasattr(items, "__iter__"):
        return None
    items = [_plain(item, choices) for item in islice(items, MAX_LIST + 1)]
    return items if len(items) <= MAX_LIST and all(isinstance(item, SCALARS) for item in items) else None


def _number(text, kind=None):
    """Return the number that a text is, or the text."""
    for base in (float,) if kind == "float" else (int, float):
        try:
            return _plain(base(text))
        except ValueError:
            pass
    return text


def _kind(declared, *values):
    """Return the name of a type; where a function converts the word, that of the first value that is a scalar."""
    if isinstance(declared, type) and declared is not bool:
        bases = () if hasattr(declared, "__members__") else SCALARS[1:]
        return next((base.__name__ for base in bases if issubclass(declared, base)), declared.__name__)
    for value in values:
        if type(value) in SCALARS:
            return type(value).__name__
    name = getattr(declared, "__name__", None)
    return "bool" if name and "bool" in name.lower() else name


def _of_hint(hint):
    """Return the kind and the choices of a type hint; those of `Optional[int]` are int's."""
    origin = str(getattr(hint, "__origin__", type(hint)))
    parts = [part for part in getattr(hint, "__args__", None) or () if part is not type(None)]
    if hasattr(hint, "__metadata__"):
        return _of_hint(hint.__origin__)
    if origin.endswith("Literal"):
        return _kind(None, *parts), _list(parts)
    if "Union" in origin:
        kinds, lists = zip(*[_of_hint(part) for part in parts])
        kind = kinds[0] if len(set(kinds)) == 1 else ("str" if all(lists) else None)
        return kind, [choice for choices in lists for choice in choices] if all(lists) else None
    members = getattr(hint, "__members__", None)
    return "str" if members else _kind(hint), list(members) if members else None


def _read(holder, path):
    """Return the value of a dest, which may be dotted: that of an attribute, or of a part of it."""
    if hasattr(holder, path):
        return getattr(holder, path)
    for part in path.split("."):
        holder = holder.get(part) if isinstance(holder, dict) else getattr(holder, part, None)
    return holder


def _mark_typed(options, words):
    """Mark the options that words name: in full, with `=` and a value, shortened, as letters, or with a part's name."""
    by_name = {name: option for option in options for name in option["names"] + option["off"]}
    for word in words:
        if word == "--":
            return
        name = word.split("=", 1)[0]
        matches = [name] if name in by_name else []
        if not matches and name.startswith("--"):
            longer = [known for known in by_name if known.startswith(name)]
            matches = longer if len({id(by_name[known]) for known in longer}) == 1 else []
            matches += [known for known in by_name if name.startswith(known + ".")]
        elif not matches and name.startswith("-"):
            are_known = ["-" + letter in by_name for letter in name[1:]] + [False]
            matches = ["-" + letter for letter in name[1 : are_known.index(False) + 1]]
        for match in matches:
            by_name[match]["typed"] = True


def _tree(parts, prefix=""):
    """Return the options of a tree of settings, named by their paths.

    Args:
        parts: key → a triple of the kind, the value, and the parts below, which are None at a leaf.
        prefix: what comes before the keys.
    """
    options = []
    for key, (kind, value, below) in parts.items():
        name = prefix + str(key)
        if below is None:
            options.append(_option([name], name.lstrip("-"), kind or _kind(None, value), value, None))
        else:
            options += _tree(below, name + ".")
    return options


# argparse and what is built on it ------------------------------------------------------------------------------------


class _Parse:
    """A parser at work, whether it parses the command line, and the parsers that it has called."""

    def __init__(self, parser, args):
        self.parser = parser
        self.inner = []
        self._stack = vars(_threads).setdefault("stack", [])
        self.is_own = not self._stack and _package(next(_callers())) not in LIBRARIES and _is_own(args)
        if self._stack:
            self._stack[0].inner.append(parser)
        self._stack.append(self)

    def leave(self):
        if self in self._stack:
            del self._stack[self._stack.index(self) :]


def _patch_argparse(module):
    for name in ("parse_known_args", "parse_known_intermixed_args"):
        _around(module.ArgumentParser, name, _argparse_begins, _argparse_done)


def _patch_jsonargparse(module):
    done = functools.partial(_argparse_done, has_rest=False)
    _around(module.ArgumentParser, "parse_args", _argparse_begins, done)


def _patch_dataclasses(module):
    """Listen to a parser that gets text from argparse, whatever the type, and makes dataclasses of it."""
    done = functools.partial(_argparse_done, is_text=True)
    _around(module.ArgumentParser, "parse_known_args", _argparse_begins, done)


@_guard
def _argparse_begins(parser, args=None, *_, **__):
    return _Parse(parser, args)


@_guard
def _argparse_done(parse, result, has_rest=True, is_text=False):
    if parse.is_own:
        holder, rest = result if has_rest else (result, None)
        _keep_rest(rest)
        parser = getattr(parse.parser, "parser", parse.parser)
        options = _of_parser(parser, holder, parse.inner)
        if is_text:
            options = [dict(option, kind=_kind(None, option["value"])) for option in options]
        _mark_typed(options, sys.argv[1:])
        _tell("argparse", parser.prog, options)


def _of_parser(parser, holder, inner):
    """Return the options of a parser, and of the sub-parsers that it has called."""
    options = _each(_of_action, [action for action in parser._actions if action.option_strings], holder)
    groups = [action.choices for action in parser._actions if not action.option_strings]
    for name, part in [item for group in groups if isinstance(group, dict) for item in group.items()]:
        if any(part is called for called in inner):
            own = _read(holder, name)
            options += _of_parser(part, own if hasattr(own, "__dict__") else holder, inner)
    switches = {option["dest"]: option for option in options if option["kind"] == "bool" and not _is_off(option)}
    for option in [option for option in options if _is_off(option) and option["dest"] in switches]:
        switches[option["dest"]]["off"] += option["names"]
        options.remove(option)
    return options


def _is_off(option):
    return option["off"] == option["names"]


def _of_action(action, holder):
    """Return the option that an action of argparse is, as a list: empty for one that only asks, such as the help."""
    if action.dest == SUPPRESS or any(part in type(action).__name__ for part in ASKING):
        return []
    value = _read(holder, action.dest)
    if hasattr(value, "class_path") and hasattr(value, "init_args"):
        options = _tree(_of_class(value), action.option_strings[0] + ".init_args.")
        return [dict(option, names=option["names"] + [_without_init(option["names"][0])]) for option in options]
    names = [name for name in action.option_strings if not name.endswith("+")]
    const, choices, hint = getattr(action, "const", None), _list(action.choices), getattr(action, "_typehint", None)
    off = [name for name in names if action.nargs in {0, "?"} and _is_negative(name, names)]
    if action.nargs == 0 and const is False:
        off = names
    switch = action.nargs == 0 or bool(off) or (action.nargs == "?" and const is not None)
    if off or (switch and isinstance(const, bool)):
        kind = "bool"
    elif hint is not None:
        kind, listed = _of_hint(hint)
        kind, choices = kind or _kind(None, value), choices or listed
    elif action.nargs == 0:
        kind = "int" if "Count" in type(action).__name__ else _kind(None, const)
    else:  # with type=bool any text is true, so that no word can be said to be its value
        kind = None if action.type is bool else _kind(action.type or str, value, action.default)
    default = None if action.default == SUPPRESS else _plain(action.default, choices)
    default = _number(default, kind) if kind in {"int", "float"} and isinstance(default, str) else default
    text = (action.help or "").replace("%(default)s", str(default)).replace("%%", "%")
    on, value = [name for name in names if name not in off] or names, _plain(value, choices)
    return [_option(on, action.dest, kind, value, default, switch, off, choices, text=text or None)]


def _is_negative(name, names):
    bare = name.lstrip("-")
    return bare.startswith("no") and bare[2:].lstrip("-_") in {known.lstrip("-") for known in names}


def _without_init(name):
    return name.replace(".init_args.", ".")


def _of_class(value):
    """Return the settings of a class that the command line chooses, as jsonargparse names them."""
    items = vars(value.init_args) if hasattr(value.init_args, "__dict__") else {}
    return {
        key: (None, None, {"init_args": (None, None, _of_class(item))})
        if hasattr(item, "class_path") and hasattr(item, "init_args")
        else (None, _plain(item), None)
        for key, item in items.items()
    }


# click and typer -----------------------------------------------------------------------------------------------------


def _patch_click(module):
    _around(module.Command, "parse_args", _click_begins, _click_done)


@_guard
def _click_begins(command, ctx, args, *_, **__):
    root = ctx.find_root()
    if ctx is root and not ctx.resilient_parsing and _is_own(args):
        _click_root[:] = [ctx]
    return (command, ctx) if any(root is own for own in _click_root) else None


@_guard
def _click_done(parse, _):
    command, ctx = parse
    params = [param for param in command.params if param.param_type_name == "option"]
    _tell("click", ctx.command_path, _each(_of_param, params, ctx))


def _of_param(param, ctx):
    source = getattr(ctx.get_parameter_source(param.name), "name", None)
    if hasattr(param, "type_descriptor"):  # typer without click
        kind, choices = _of_hint(param.type_descriptor.annotation)
        choices = _list(param.type_descriptor.choices) if param.type_descriptor.is_choice else choices
    else:
        kind, choices = getattr(param.type, "name", None), getattr(param.type, "choices", None)
        choices = choices and _list([getattr(choice, "name", choice) for choice in choices])
    value = _plain(ctx.params.get(param.name), choices)
    default = value if source == "DEFAULT" else _plain(param.default, choices)
    switch = param.is_flag or param.count or getattr(param, "_flag_needs_value", False)
    kind, typed, off = KINDS.get(kind, kind), source == "COMMANDLINE", param.secondary_opts
    return [_option(param.opts, param.name, kind, value, default, switch, off, choices, typed, param.help)]


# absl ----------------------------------------------------------------------------------------------------------------


def _patch_absl(module):
    _around(module.FlagValues, "__call__", _absl_begins, _absl_done)


@_guard
def _absl_begins(flags, argv, *_, **__):
    has_words = isinstance(argv, (list, tuple)) and argv
    return flags if has_words and (list(argv) == sys.argv or _is_own(argv[1:])) else None


@_guard
def _absl_done(flags, result):
    _keep_rest(result[1:])
    held = [flag for module, held in flags.flags_by_module_dict().items() if module[:5] != "absl." for flag in held]
    options = _each(_of_flag, held)
    _mark_typed([option for option in options if "." in option["dest"]], sys.argv[1:])
    _tell("absl", None, options)


def _of_flag(flag):
    if hasattr(flag.value, "to_dict"):  # a tree of ml_collections: --config.batch_size=8
        return _tree(_of_dict(flag.value.to_dict()), "--" + flag.name + ".")
    names = ["--" + flag.name] + (["-" + flag.short_name] if flag.short_name else [])
    kind, choices = KINDS.get(flag.flag_type(), flag.flag_type()), _list(getattr(flag.parser, "enum_values", None))
    off, typed = ["--no" + flag.name] if flag.boolean else [], bool(flag.present)
    value, default = _plain(flag.value), _plain(flag.default)
    return [_option(names, flag.name, kind, value, default, flag.boolean, off, choices, typed, flag.help)]


def _of_dict(tree):
    return {key: (None, _plain(item), _of_dict(item) if isinstance(item, dict) else None) for key, item in tree.items()}


# tyro ----------------------------------------------------------------------------------------------------------------


def _patch_tyro(module):
    _around(module, "callable_with_args", _tyro_begins)


@_guard
def _tyro_begins(_, spec, __, values, field_name_prefix=""):
    caller = next(_callers())
    if field_name_prefix or caller.f_code.co_name != "_cli_impl":
        return
    words, dashed = sys.argv[1:], [word.replace("_", "-") for word in sys.argv[1:]]
    if _is_part([word.replace("_", "-") for word in caller.f_locals["args"]], dashed):
        options = _each(_of_argument, _arguments(spec, values), values)
        for line in (words, dashed, [word.replace("-", "_").replace("__", "--", 1) for word in words]):
            _mark_typed(options, line)
        _tell("tyro", caller.f_locals.get("prog"), options)


def _arguments(spec, values):
    """Return the arguments of a specification and of its parts, with those of the sub-commands that are chosen."""
    chosen = {value for value in values.values() if isinstance(value, str)}
    parts = list(spec.child_from_prefix.values())
    for group in spec.subparsers_from_intern_prefix.values():
        parts += [part for name, part in group.parser_from_name.items() if name in chosen]
    parts = [part.evaluate() if hasattr(part, "evaluate") else part for part in parts]
    return [*spec.args, *(argument for part in parts for argument in _arguments(part, values))]


def _of_argument(argument, values):
    field, lowered, action = argument.field, argument.lowered, str(argument.lowered.action)
    names = lowered.name_or_flags if hasattr(lowered, "name_or_flags") else (lowered.name_or_flag,)
    if not names[0].startswith("-"):
        return []
    kind, choices = _of_hint(getattr(field, "type_stripped", None) or getattr(field, "type_or_callable", None))
    choices = _list(lowered.choices) or choices
    default = _plain(field.default, choices)
    value, words = default, values.get(lowered.dest)
    if isinstance(words, (list, tuple)):
        words = [_number(word, kind) if kind not in {"str", "bool"} else word for word in words]
        value = words[0] if lowered.nargs in {None, 1} and len(words) == 1 else words
    elif isinstance(words, SCALARS):
        value = words
    switch = "store" in action or "oolean" in action
    off = [_negative(name) for name in names if name.startswith("--") and "oolean" in action]
    text = lowered.help() if callable(lowered.help) else lowered.help
    return [_option(names, lowered.dest.replace("-", "_"), kind, value, default, switch, off, choices, text=text)]


def _negative(name):
    head, dot, tail = name.rpartition(".")
    return head + ".no-" + tail if dot else "--no-" + name[2:]


# Hydra and OmegaConf -------------------------------------------------------------------------------------------------


def _patch_hydra(module):
    _around(module.HydraConfig, "set_config", _hydra_begins)


@_guard
def _hydra_begins(_, cfg, **__):
    _tell_config("hydra", cfg, [str(word) for word in cfg.hydra.overrides.task])


def _patch_omegaconf(module):
    _around(module.OmegaConf, "from_dotlist", _dotlist_begins, _dotlist_done)
    for name in ("merge", "unsafe_merge"):
        _around(module.OmegaConf, name, _merge_begins, _merge_done)


@_guard
def _dotlist_begins(dotlist):
    return [str(word) for word in dotlist] if _is_own(dotlist) else None


@_guard
def _dotlist_done(words, result):
    argv_is_read()
    _overrides[:] = [(result, words)]


@_guard
def _merge_begins(*configs):
    overrides = _overrides if _told["parses"] < MAX_PARSES else []
    return next((words for config, words in overrides if any(config is part for part in configs)), None)


@_guard
def _merge_done(words, result):
    if isinstance(getattr(result, "_content", None), dict):
        _overrides[:] = [(result, words)]
        _tell_config("omegaconf", result, words)


def _tell_config(parser, config, words):
    named = {word.split("=", 1)[0].lstrip("+~") for word in words}
    options = _tree(_of_config(config, "hydra"))
    for option in options:
        option["typed"] = any((option["dest"] + ".").startswith(name + ".") for name in named)
        option["default"] = None if option["typed"] else option["value"]
    _tell(parser, None, options)


def _of_config(config, left_out=None):
    items = config._content.items()
    return {key: _of_node(config, node) for key, node in items if isinstance(key, str) and key != left_out}


def _of_node(config, node):
    """Return kind, value and parts of a node. A resolver may compute anything, so that what it computes is not told."""
    kind, node = KINDS.get(type(node).__name__), _target(config, node)
    if node is None or node._is_none() or node._is_missing():
        return kind, None, None
    if hasattr(node, "items"):
        return None, None, _of_config(node)
    if type(node).__name__ == "ListConfig":
        return kind, _plain([_of_node(node, part)[1] for part in node._content]), None
    return kind, _plain(node._value()), None


def _target(config, node):
    """Return the node that an interpolation stands for by its path, or None where it is of another kind."""
    for _ in range(MAX_HOPS):
        if node is None or not node._is_interpolation():
            return node
        path, node = str(node._value())[2:-1], config._get_root()
        for part in path.split("."):
            content = getattr(node, "_content", None)
            node = content.get(part) if isinstance(content, dict) else None
    return None


# Fire ----------------------------------------------------------------------------------------------------------------


def _patch_fire(module):
    make = module._MakeParseFn

    @functools.wraps(make)
    def make_parse(fn, metadata):
        parse = make(fn, metadata)

        def parse_args(args):
            result = parse(args)
            _fire_done(fn, result[0])
            return result

        return parse_args

    module._MakeParseFn = make_parse


@_guard
def _fire_done(fn, arguments):
    fire = next((frame for frame in _callers() if frame.f_code.co_name == "Fire" and _package(frame) == "fire"), None)
    if fire is not None and fire.f_locals.get("command") is None:
        signature = sys.modules["inspect"].signature(fn)
        bound = signature.bind(*arguments[0], **arguments[1]).arguments
        options = _each(_of_parameter, signature.parameters.values(), bound)
        _mark_typed(options, [word.replace("-", "_").replace("__", "--", 1) for word in sys.argv[1:]])
        _tell("fire", None, options)


def _of_parameter(parameter, bound):
    if parameter.kind.name not in {"POSITIONAL_OR_KEYWORD", "KEYWORD_ONLY"}:
        return []
    name, default = parameter.name, None if parameter.default is parameter.empty else parameter.default
    value = bound.get(name, default)
    kind = _kind(None, default, value)
    default, value, is_bool = _plain(default), _plain(value), kind == "bool"
    off = ["--no" + name] if is_bool else []
    return [_option(["--" + name], name, kind, value, default, is_bool, off, typed=value != default)]
