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

from tuner.study.config_files import values_in
from tuner.study.expression import Rule
from tuner.study.shell import shell_split
from tuner.study.space import Value, value_text
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
        return frozenset(map(_parameter, (*self.space, *self.computed)))


@cache
def launches() -> Mapping[str, LaunchSpace]:
    """Return each launch by its name, as `launches.toml` lists them."""
    tables = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return TypeAdapter(dict[str, LaunchSpace]).validate_python(tables)


def launch_with_flags(flags: Collection[str]) -> str | None:
    """Return the name of the launch that a script belongs to, by the flags that it has; None for any other script."""
    known = set(map(_without_dashes, flags))
    for name, launch in launches().items():
        if launch.typical_flags and known.issuperset(map(_without_dashes, launch.typical_flags)):
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
class _Command:
    """A study's command, in which flags are replaced by placeholders one after another."""

    words: list[str]
    env: dict[str, str]
    file: str = ""
    """The configuration file, as the command names it."""
    in_file: Mapping[str, Value] = field(default_factory=dict)
    """The keys to a value of the configuration file, joined by dots → the value."""

    def value_of(self, flag: str) -> str | None:
        """Return the typed value of a flag, "true" for one without a value; None where the command lacks the flag."""
        place = self._index_of(flag)
        if place is None:
            return None
        _, equals, value = self.words[place].partition("=")
        if equals:
            return value
        return "true" if self.is_bare(flag) else self.words[place + 1]

    def is_bare(self, flag: str) -> bool:
        """Return whether a flag is typed without a value: nothing or another flag follows it."""
        place = self._index_of(flag)
        if place is None or "=" in self.words[place]:
            return False
        if place + 1 == len(self.words):
            return True
        return re.match(r"--?[A-Za-z]|\{flag:", self.words[place + 1]) is not None

    def put_placeholder(self, flag: str, placeholder: str, after: str = "") -> None:
        """Replace a flag's value by a placeholder; add the flag where it is missing.

        It is added behind the word `after`, or at the end. A flag without a value is replaced as a whole, by a
        placeholder such as `{flag:NAME}`.
        """
        place = self._index_of(flag)
        if place is None:
            at = self.words.index(after) + 1 if after in self.words else len(self.words)
            added = [placeholder] if placeholder.startswith("{flag:") else [f"--{flag}", placeholder]
            self.words[at:at] = added
        elif "=" in self.words[place]:
            name = self.words[place].partition("=")[0]
            self.words[place] = f"{name}={placeholder}"
        elif self.is_bare(flag):
            self.words[place] = placeholder
        else:
            self.words[place + 1] = placeholder

    def sets(self, name: str) -> bool:
        """Return whether the command or its file sets the value called `name`. `auto` in the file counts as not set."""
        return self.value_of(name) is not None or self.in_file.get(name, "auto") != "auto"

    def values(self) -> dict[str, Value]:
        """Return parameter → its value in the command, or else in its file; typed placeholders are left out."""
        values = {_parameter(keys): value for keys, value in self.in_file.items()}
        for word in self.words:
            flag = word.partition("=")[0].lstrip("-") if word.startswith("--") else ""
            text = self.value_of(flag) if flag else None
            if text and "{" not in text:
                values[_parameter(flag)] = _typed_value(text)  # replaces the value of the file
        return values

    def _index_of(self, flag: str) -> int | None:
        """Return the index of the word with a flag; None where the command lacks the flag."""
        for place, word in enumerate(self.words):
            if word.startswith("--") and _without_dashes(word.partition("=")[0]) == _without_dashes(flag):
                return place
        return None


@dataclass(slots=True)
class _Additions:
    """What a launch adds to a study: `_add_to_space` and `_add_computed_flags` fill it, setting by setting."""

    space: dict[str, dict[str, Any]] = field(default_factory=dict)
    unset: dict[str, Value] = field(default_factory=dict)
    """Parameter → the value with which its flag is left out of the command."""
    files: dict[str, str] = field(default_factory=dict)
    """Parameter → the keys to its value in the configuration file."""
    computed: dict[str, str] = field(default_factory=dict)
    """Parameter → the expression of its value."""


def _with_launch(study: dict[str, Any], name: str, launch: LaunchSpace) -> dict[str, Any]:
    """Return the content of a study file, completed by one ready-made space; the file's own keys and values stay.

    Raises ValueError for a study without a command, and where the command has no setting that the launch could vary.
    """
    trainer = dict(study.get("trainer") or {})
    options = dict(trainer.get("options") or {})
    if trainer.get("name") != "command" or not options.get("command"):
        raise ValueError(f"launch: {name} needs the trainer `command`, with a command among its options")
    command, added = _command(trainer, options, launch), _Additions()  # both are changed by the steps below
    values = {**launch.rule_defaults, **command.values()}
    for flag, setting in launch.space.items():
        current = _current_value(command, flag, setting)
        if current is not None:
            values[_parameter(flag)] = current
            _add_to_space(command, flag, setting, current, added)
    if not added.space:
        raise ValueError(f"launch: {name} finds nothing in the command that may vary; docs/launches.md lists its flags")
    _add_computed_flags(command, launch, values, added)
    rules = [_rule_with_values(text, values, added) for text in launch.rules]
    return {
        "objective": "samples_per_s",
        **study,
        "trainer": {**trainer, "options": _completed_options(options, command, added)},
        "space": {**added.space, **(study.get("space") or {})},
        "rules": [*(rule for rule in rules if rule is not None), *(study.get("rules") or ())],
    }


def _completed_options(options: Mapping[str, Any], command: _Command, added: _Additions) -> dict[str, Any]:
    """Return a trainer's options with the command that has placeholders, and with the keys that a launch adds.

    The keys `unset` and `computed` are those of `added`; `files` names the configuration file of the command for those
    of its values that are searched. What the options have under these keys stays.

    Without a key about progress, the tuner counts steps inside the training, where it sees what a config changes. Then
    the parts `KEPT` may not change, and all configs count as learning the same, unless `options` say otherwise.
    """
    is_counted_inside = not options.keys() & {"progress", "count", "samples_per_iteration", "session"}
    defaults = {"keeps": KEPT, "learning": "keep"} if is_counted_inside else {}
    completed = {**defaults, **options, "command": command.words}
    if command.env:
        completed["env"] = command.env
    files = {command.file: added.files} if added.files else {}
    for key, additions in {"unset": added.unset, "computed": added.computed, "files": files}.items():
        if additions:
            completed[key] = {**additions, **(options.get(key) or {})}
    return completed


def _command(trainer: Mapping[str, Any], options: Mapping[str, Any], launch: LaunchSpace) -> _Command:
    """Return the command of a study. Its file is the first JSON file among its words with the keys `launch.file`."""
    text = options["command"]
    words = list(shell_split(text) if isinstance(text, str) else map(str, text))
    command = _Command(words, {name: str(value) for name, value in (options.get("env") or {}).items()})
    if not launch.file:
        return command
    folder = Path(str(trainer.get("root") or ""), str(options.get("cwd") or "")).expanduser()
    for word in words:
        name = word.rpartition("=")[2]  # of `--deepspeed=FILE`, or of a word of its own
        values = values_in(folder / name) if name.endswith(".json") else {}
        if launch.file in values:
            return replace(command, file=name, in_file=values)
    return command


def _current_value(command: _Command, flag: str, setting: LaunchSetting) -> Value | None:
    """Return the value that a setting has in the command as it is; None where the setting cannot be searched.

    It cannot be searched where a flag that it needs is missing, or a flag that it excludes is there. Nor can it where
    its value is unknown, is a placeholder already, or is a word while the choices are numbers, or the reverse.
    """
    if not all(map(command.sets, setting.needs)) or any(map(command.sets, setting.without)):
        return None
    text = command.env.get(flag) if setting.env else command.value_of(flag)
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


def _add_to_space(command: _Command, flag: str, setting: LaunchSetting, current: Value, added: _Additions) -> None:
    """Add a setting to the space of a study, and put its placeholder into the command or its file.

    `flag` is the name of the setting. `current` is its value in the command, which the space lists first. A setting
    with a condition on a parameter outside the space is not added.
    """
    if not setting.when.keys() <= added.space.keys():
        return
    parameter = flag if setting.switch else _parameter(flag)
    # a key of a file always has a value
    is_given = flag in command.env if setting.env else bool(setting.key) or command.value_of(flag) is not None

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
    if setting.env:
        command.env[flag] = f"{{{parameter}}}"
    elif setting.switch and (not is_given or command.is_bare(flag)):
        command.put_placeholder(flag, f"{{flag:{parameter}}}", setting.after)
    else:
        command.put_placeholder(flag, f"{{{parameter}}}", setting.after)


def _add_computed_flags(command: _Command, launch: LaunchSpace, values: Mapping[str, Value], added: _Additions) -> None:
    """Add the flags whose values are computed from searched flags, so that the total batch stays.

    In their expressions, `{own:NAME}` is replaced by the number that the command has. Where that number is unknown, the
    flag stays as it is. A typed flag stays, too, unless the launch knows its default (`own`), or it is typed as -1,
    with which torchtitan computes the value itself. `values`: parameter → its value in the command.
    """
    for flag, computed in launch.computed.items():
        parameter, expression = _parameter(flag), str(computed["value"])
        own_values = {parameter: computed["own"], **values} if "own" in computed else values
        names = re.findall(r"\{own:(\w+)\}", expression)
        may_be_computed = "own" in computed or command.value_of(flag) in {None, "-1"}
        if may_be_computed and all(isinstance(own_values.get(name), int) for name in names):
            for name in names:
                expression = expression.replace(f"{{own:{name}}}", str(own_values[name]))
            added.computed[parameter] = expression
            command.put_placeholder(flag, f"{{{parameter}}}")


def _rule_with_values(rule: str, values: Mapping[str, Value], added: _Additions) -> str | None:
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
    try:
        return int(text) if re.fullmatch(r"-?\d{1,15}", text) else float(text)
    except ValueError:
        return text


def _without_dashes(flag: str) -> str:
    """Return a flag in the spelling in which flags are compared: `tensor_parallel` for `--tensor-parallel`."""
    return flag.lstrip("-").replace("-", "_")


def _parameter(flag: str) -> str:
    """Return the name of a flag as a parameter: `tensor_parallel` for `--parallelism.tensor-parallel`."""
    return _without_dashes(flag).rpartition(".")[2]
