"""Ready-made spaces for launches of large models: what `launch: megatron` adds to a study file.

    launch: megatron
    trainer: {name: command, options: {command: "torchrun --nproc-per-node {ranks} pretrain_gpt.py …"}}

A launch knows which flags of a script, environment variables, or values of a configuration file are worth a search. The
value that the command has is searched first. What the study file says itself stays. `launches.toml` lists the launches.
"""

import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from tuner.count import as_parameter
from tuner.study.command_words import Setting, settings
from tuner.study.config_files import named_files, values_in
from tuner.study.expression import Rule
from tuner.study.shell import shell_split
from tuner.study.space import Value, read_number, value_text
from tuner.study.spec import RANKS

KEPT = ["batch", "sample", "model", "optimizer", "precision", "loss"]
"""The parts of the training that no launch changes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchSetting:
    """A setting that a launch searches: a flag, unless `env` or `key` says otherwise."""

    choices: tuple[Value, ...] = ()
    own: Value | None = None
    """The value that the script uses without the flag; None where this is unknown, so that the flag must be typed."""
    switch: bool = False
    """Whether the flag stands without a value."""
    typed: bool = False
    """Whether a switch is searched only where the command has it."""
    env: bool = False
    """Whether it is an environment variable."""
    key: bool = False
    """Whether it is a value of the configuration file; its name is then the keys to the value, joined by dots."""
    after: str = ""
    """The word of the command behind which the flag is added: those of a launcher stand before the script."""
    needs: tuple[str, ...] = ()
    """Flags that have to be typed, too."""
    without: tuple[str, ...] = ()
    """Flags that must not be typed."""
    when: Mapping[str, Any] = field(default_factory=dict)
    """Its condition, as in a study file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchSpace:
    """A ready-made space for a launcher, or for a script that trains large models."""

    space: Mapping[str, LaunchSetting]
    rules: tuple[str, ...] = ()
    rule_defaults: Mapping[str, Value] = field(default_factory=dict)
    """Parameter of a rule → its value where the command does not say it."""
    computed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Computed flag → `value`, its expression, and perhaps `own`, its default, with which it may be typed, too.

    In the expression, `{own:NAME}` is the value that the command has for another flag.
    """
    file: str = ""
    """The keys, joined by dots, by which the configuration file is recognised; empty where there is no such file."""
    typical_flags: tuple[str, ...] = ()
    """The flags by which a script is recognised: it has all of them."""

    @property
    def parameters(self) -> frozenset[str]:
        """The names of all parameters that this space searches or computes."""
        return frozenset(map(as_parameter, (*self.space, *self.computed)))


@cache
def launches() -> Mapping[str, LaunchSpace]:
    """Return each launch by its name, as `launches.toml` lists them."""
    tables = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return TypeAdapter(dict[str, LaunchSpace]).validate_python(tables)


def launch_with_flags(flags: Collection[str]) -> str | None:
    """Return the name of the launch that a script belongs to, by the flags that it has; None for any other script."""
    known = {flag.replace("-", "_") for flag in flags}
    for name, launch in launches().items():
        if launch.typical_flags and all(flag.replace("-", "_") in known for flag in launch.typical_flags):
            return name
    return None


def with_launches(study: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a study file, completed by the ready-made spaces that its key `launch` names.

    Raises ValueError for an unknown launch, and for a study without a command.
    """
    launch = study.get("launch") or []
    names = [launch] if isinstance(launch, str) else launch
    for name in reversed(names):  # each puts its parameters before the others, so the first launch is added last
        if name not in launches():
            raise ValueError(f"launch: {name!r} is unknown; known: {', '.join(launches())}")
        study = _with_launch(study, name, launches()[name])
    return study


@dataclass(slots=True)
class _Completion:
    """The command of a study, and what a launch adds to the study: both change setting by setting."""

    words: list[str]
    """The command, with placeholders for the settings so far."""
    env: dict[str, str]
    file: str = ""
    """The configuration file, as the command names it."""
    in_file: Mapping[str, Value] = field(default_factory=dict)
    """The keys to a value of the configuration file, joined by dots → the value."""
    space: dict[str, dict[str, Any]] = field(default_factory=dict)
    unset: dict[str, Value] = field(default_factory=dict)
    """Parameter → the value with which its flag is left out of the command."""
    files: dict[str, str] = field(default_factory=dict)
    """Parameter → the keys to its value in the configuration file."""
    computed: dict[str, str] = field(default_factory=dict)
    """Parameter → the expression of its value."""

    def setting(self, flag: str) -> Setting | None:
        """Return the setting of a flag in the command; None where the command lacks the flag."""
        return next((typed for typed in settings(self.words, with_bare=True) if typed.is_called(flag)), None)

    def put_placeholder(self, flag: str, placeholder: str, after: str = "") -> None:
        """Replace a flag's value by a placeholder; add a missing flag behind the word `after`, or at the end.

        A placeholder such as `{flag:NAME}` stands for a flag without a value.
        """
        if typed := self.setting(flag):
            self.words[typed.word_index] = typed.word_with(placeholder, self.words)
            return
        at = self.words.index(after) + 1 if after in self.words else len(self.words)
        self.words[at:at] = [placeholder] if placeholder.startswith("{flag:") else [f"--{flag}", placeholder]

    def sets(self, name: str) -> bool:
        """Return whether the command or its file sets the value called `name`. `auto` in the file counts as not set."""
        return self.setting(name) is not None or self.in_file.get(name, "auto") != "auto"

    def values(self) -> dict[str, Value]:
        """Return parameter → its value in the command, or else in its file; typed placeholders are left out."""
        of_file = {as_parameter(keys): value for keys, value in self.in_file.items()}
        typed = settings(self.words, with_bare=True)
        return of_file | {
            setting.parameter: _typed_value(setting.value) for setting in typed if "{" not in setting.value
        }


def _with_launch(study: dict[str, Any], name: str, launch: LaunchSpace) -> dict[str, Any]:
    """Return the content of a study file, completed by one ready-made space; the file's own keys and values stay.

    Raises ValueError for a study without a command, and where the command has no setting that the launch could vary.
    """
    trainer = dict(study.get("trainer") or {})
    options = dict(trainer.get("options") or {})
    if trainer.get("name") != "command" or not options.get("command"):
        raise ValueError(f"launch: {name} needs the trainer `command`, with a command among its options")
    added = _command_to_complete(trainer, options, launch)
    values = {**launch.rule_defaults, **added.values()}
    for flag, setting in launch.space.items():
        current = _current_value(added, flag, setting)
        if current is not None:
            values[as_parameter(flag)] = current
            _add_to_space(added, flag, setting, current)
    if not added.space:
        raise ValueError(f"launch: {name} finds nothing in the command that may vary; docs/launches.md lists its flags")
    _add_computed_flags(added, launch, values)
    rules = [_rule_with_values(text, values, added) for text in launch.rules]
    return {
        "objective": "samples_per_s",
        **study,
        "trainer": {**trainer, "options": _completed_options(options, added)},
        "space": {**added.space, **(study.get("space") or {})},
        "rules": [*(rule for rule in rules if rule is not None), *(study.get("rules") or ())],
    }


def _completed_options(options: Mapping[str, Any], added: _Completion) -> dict[str, Any]:
    """Return a trainer's options with the command that has placeholders, and with the keys that a launch adds.

    The keys `unset` and `computed` are those of `added`; `files` names the configuration file of the command for those
    of its values that are searched. What the options have under these keys stays.

    Without a key about progress, the tuner counts steps inside the training, where it sees what a config changes. Then
    the parts `KEPT` may not change, and all configs count as learning the same, unless `options` say otherwise.
    """
    is_counted_inside = not options.keys() & {"progress", "count", "samples_per_iteration", "session"}
    defaults = {"keeps": KEPT, "learning": "keep"} if is_counted_inside else {}
    completed = {**defaults, **options, "command": added.words}
    if added.env:
        completed["env"] = added.env
    files = {added.file: added.files} if added.files else {}
    for key, additions in {"unset": added.unset, "computed": added.computed, "files": files}.items():
        if additions:
            completed[key] = {**additions, **(options.get(key) or {})}
    return completed


def _command_to_complete(trainer: Mapping[str, Any], options: Mapping[str, Any], launch: LaunchSpace) -> _Completion:
    """Return a study's command, to which nothing of the launch is added yet.

    Its file is the first JSON file among its words with the keys `launch.file`.
    """
    text = options["command"]
    words = list(shell_split(text) if isinstance(text, str) else map(str, text))
    command = _Completion(words, {name: str(value) for name, value in (options.get("env") or {}).items()})
    if not launch.file:
        return command
    folder = Path(str(trainer.get("root") or ""), str(options.get("cwd") or "")).expanduser()
    for name in named_files(words):
        values = values_in(folder / name) if name.endswith(".json") else {}
        if launch.file in values:
            return replace(command, file=name, in_file=values)
    return command


def _current_value(command: _Completion, flag: str, setting: LaunchSetting) -> Value | None:
    """Return the value that a setting has in the command as it is; None where the setting cannot be searched.

    It cannot be searched where a flag that it needs is missing, or a flag that it excludes is there. Nor can it where
    its value is unknown, is a placeholder already, or is a word while the choices are numbers, or the reverse.
    """
    if not all(map(command.sets, setting.needs)) or any(map(command.sets, setting.without)):
        return None
    typed = command.setting(flag)
    text = command.env.get(flag) if setting.env else typed and typed.value
    if setting.switch:
        if text is None:
            return None if setting.typed else False
        return text.lower() == "true"
    current = setting.own if text is None else _typed_value(text)
    if setting.key:
        current = command.in_file.get(flag)
    is_word, choices_are_words = isinstance(current, str), isinstance(setting.choices[0], str)
    is_of_kind = is_word == choices_are_words or current == setting.own
    is_placeholder = "{" in str(current)  # the study varies it already
    return current if is_of_kind and not is_placeholder else None


def _add_to_space(added: _Completion, flag: str, setting: LaunchSetting, current: Value) -> None:
    """Add a setting to the space of a study, and put its placeholder into the command or its file.

    `flag` is the name of the setting. `current` is its value in the command, which the space lists first. A setting
    with a condition on a parameter outside the space is not added.
    """
    if not setting.when.keys() <= added.space.keys():
        return
    parameter, typed = flag if setting.switch else as_parameter(flag), added.setting(flag)
    is_given = flag in added.env if setting.env else setting.key or typed is not None  # a key of a file has a value

    # The space. A setting that counts only sometimes, and is not given, has no current value to begin with.
    choices = (False, True) if setting.switch else setting.choices
    first = (current,) if is_given or not setting.when else ()
    added.space[parameter] = {"choices": list(dict.fromkeys((*first, *choices)))}
    if setting.when:
        added.space[parameter]["when"] = dict(setting.when)

    # The command, or its file.
    if setting.key:
        added.files[parameter] = flag
        return
    if not (is_given or setting.switch):
        added.unset[parameter] = current  # at this value the flag is left out
    is_there_or_not = setting.switch and (typed is None or typed.is_bare)
    placeholder = f"{{flag:{parameter}}}" if is_there_or_not else f"{{{parameter}}}"
    if setting.env:
        added.env[flag] = placeholder
    else:
        added.put_placeholder(flag, placeholder, setting.after)


def _add_computed_flags(added: _Completion, launch: LaunchSpace, values: Mapping[str, Value]) -> None:
    """Add the flags whose values are computed from searched flags, so that the total batch stays.

    In their expressions, `{own:NAME}` is replaced by the number that the command has. Where that number is unknown, the
    flag stays as it is. A typed flag stays, too, unless the launch knows its default (`own`), or it is typed as -1,
    with which torchtitan computes the value itself. `values`: parameter → its value in the command.
    """
    for flag, computed in launch.computed.items():
        parameter, expression = as_parameter(flag), str(computed["value"])
        own_values = {parameter: computed["own"], **values} if "own" in computed else values
        names = re.findall(r"\{own:(\w+)\}", expression)
        typed = added.setting(flag)
        may_be_computed = "own" in computed or typed is None or typed.value == "-1"
        if may_be_computed and all(isinstance(own_values.get(name), int) for name in names):
            for name in names:
                expression = expression.replace(f"{{own:{name}}}", str(own_values[name]))
            added.computed[parameter] = expression
            added.put_placeholder(flag, f"{{{parameter}}}")


def _rule_with_values(rule: str, values: Mapping[str, Value], added: _Completion) -> str | None:
    """Return a rule of a launch with values in place of the parameters that are not searched.

    `values`: parameter → its value in the command. Returns None where no parameter of the rule is searched, and where a
    value is unknown.
    """
    names = Rule(rule).names - {RANKS}
    if not names & added.space.keys():
        return None
    for name in names - added.space.keys():
        if name in added.computed:
            text = f"({added.computed[name]})"
        elif name in values:
            value = values[name]
            text = repr(value) if isinstance(value, str) else value_text(value)
        else:
            return None
        rule = rule.replace(f"{{{name}}}", text)
    return rule


def _typed_value(text: str) -> Value:
    """Return the value that a typed text stands for: true or false, a number, or else the text itself."""
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    number = read_number(text)
    return text if number is None else number
