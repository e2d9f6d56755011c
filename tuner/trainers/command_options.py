"""The options of a trainer that is any command line: what `trainer.options` may hold, and presets for `progress`."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from tuner.probe import SCORE_GROUP
from tuner.study import MOST_CASES, Expression, Name, Strict, Value, Variables, named_files, shell_split
from tuner.trainers.template import flags, placeholders


class Preset(NamedTuple):
    """How the printed lines of a popular trainer show progress."""

    progress: tuple[str, ...]
    """Patterns as in a study file."""
    counts: str
    """What one iteration is, and whose samples are counted."""
    env: Mapping[str, str] = MappingProxyType({})
    """Environment variables without which the trainer prints no progress into a pipe."""
    modules: tuple[str, ...] = ()
    """A script that imports one of these modules uses the trainer."""


def _presets() -> dict[str, Preset]:
    """Return the presets of `presets.toml` by name; a `progress` that names another preset stands for its patterns."""
    rows: dict[str, Any] = tomllib.loads(Path(__file__).with_name("presets.toml").read_text(encoding="utf-8"))
    for row in rows.values():
        patterns = row["progress"]
        row["progress"] = tuple(rows[patterns]["progress"] if isinstance(patterns, str) else patterns)
        row["modules"] = tuple(row.get("modules", ()))
    return {name: Preset(**row) for name, row in rows.items()}


PRESETS: Mapping[str, Preset] = _presets()
"""Name → preset, as `presets.toml` lists them."""


OF_NODES = frozenset({"nodes", "node_rank", "local_ranks", "head"})
"""The placeholders of a command that starts ranks on several nodes."""
LAUNCH_FACTS = OF_NODES | {"case", "out_dir", "port", "devices", "ranks", "iterations", "python", "seed"}
"""Placeholders that are no parameters.

`devices` are those of a node: `cuda:0,cuda:1` or `cpu,cpu`. `ranks` are those of all nodes. `iterations` is far more
than a probe needs: `ProbeSpec.most_iterations`.
"""

COUNTS = frozenset({"ranks", "devices"})
"""Placeholders of arithmetic that are no parameters: in it, `devices` is their number."""


def parameters(words: Iterable[str]) -> frozenset[str]:
    """Return the parameters among the placeholders in `words`."""
    return placeholders(words) - LAUNCH_FACTS


def _operands(text: str) -> frozenset[str]:
    """Return the parameters that an arithmetic computes with; none for an empty text."""
    return Expression(text).names - COUNTS if text else frozenset()


def _compiled(pattern: str) -> re.Pattern[str]:
    """Return a regular expression, compiled. Raises ValueError for a text that is none."""
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from error


def _checked_word(word: str) -> str:
    """Return a word unchanged. Raises ValueError for a broken placeholder, or a `{flag:…}` that is no parameter."""
    if stray := sorted(flags([word]) & LAUNCH_FACTS):
        raise ValueError(f"{{flag:{stray[0]}}}: a flag is a parameter of the space with the choices false and true")
    return word


def _checked_patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return patterns of progress unchanged. Raises ValueError for groups without names, or with unknown names."""
    known = ("iteration", "samples", "rank", "epoch", SCORE_GROUP)
    for pattern in patterns:
        compiled = _compiled(pattern)
        has_no_name = compiled.groups > 0 and not compiled.groupindex  # without any group, each match is an iteration
        if has_no_name or not compiled.groupindex.keys() <= set(known):
            raise ValueError(f"{pattern!r} needs named groups out of {', '.join(known)}, as in (?P<iteration>…)")
    return patterns


Words = Annotated[
    tuple[Annotated[str, AfterValidator(_checked_word)], ...],
    BeforeValidator(lambda command: shell_split(command) if isinstance(command, str) else command),
]
"""A command line: a list of words, or one text in shell quoting; no shell runs it."""
Arithmetic = Annotated[
    str,
    BeforeValidator(lambda given: str(given) if type(given) in {int, float} else given),
    AfterValidator(lambda text: text and Expression(text).text),
]
"""Arithmetic with placeholders, or a number; may be empty."""


class CommandOptions(Strict):
    """The keys that `trainer.options` may have."""

    command: Words = Field(min_length=1)
    cases: tuple[Name, ...] = Field(default=("command",), min_length=1, max_length=MOST_CASES)
    progress: Annotated[tuple[str, ...], AfterValidator(_checked_patterns)] = ()
    """Regular expressions for printed lines, or the name of a preset; `LinePatterns` describes their groups."""
    count: Literal["inside", "printed"] | None = None
    """What counts steps and samples: our code inside the trainer's processes, or what the trainer prints. By default,
    inside where no other key says how progress is read."""
    protect: bool = True
    """Whether a probe leaves the files in the folders of the command as they were."""
    keeps: tuple[Literal["batch", "sample", "model", "optimizer", "precision", "loss"], ...] = ()
    """The parts of the training that no config may change, compared with the first value of each parameter."""
    unset: dict[Name, Value] = Field(default_factory=dict)
    """Parameter → the value at which its flag is left out, because the trainer has this value without the flag."""
    cwd: str = ""
    """The folder to run in, relative to `trainer.root`, which is relative to the folder where `tuner` is started."""
    env: Annotated[Variables, AfterValidator(lambda env: {name: _checked_word(text) for name, text in env.items()})] = (
        Field(default_factory=dict)
    )
    """Environment variables. Their values may have placeholders."""
    files: dict[str, dict[Name, str]] = Field(default_factory=dict)
    """Configuration file, as the command names it → parameter → the keys to its value in the file, joined by dots. A
    probe gets a changed copy."""
    computed: dict[Name, Annotated[str, AfterValidator(lambda text: Expression(text).text)]] = Field(
        default_factory=dict
    )
    """Placeholder → its value as arithmetic with others, such as `'64 / {batch_size}'` for a total batch that stays."""
    samples_per_iteration: Arithmetic = ""
    """The samples that all ranks together collect in an iteration."""
    flops_per_sample: float | None = Field(default=None, gt=0)
    """The floating-point operations of a training step for each of its samples, for the metric `mfu`."""
    session: Words = ()
    """The command line that serves a session; without it, every probe runs `command`."""
    learning: Annotated[tuple[Name, ...] | None, BeforeValidator(lambda names: () if names == "keep" else names)] = None
    """The parameters that change what is learnt; by default, the standard ones in the command. `keep`: none does."""

    @model_validator(mode="before")
    @classmethod
    def _with_preset(cls, options: Any) -> Any:
        """Return the options with the patterns and variables of the preset that `progress` names, if it names one.

        A variable of the options replaces that of the preset. Raises ValueError for an unknown name.
        """
        name = options.get("progress") if isinstance(options, dict) else None
        if not isinstance(name, str):
            return options
        if name not in PRESETS:
            known = ", ".join(PRESETS)
            raise ValueError(f"progress {name!r} is no preset; known: {known}; or write a list of patterns")
        preset = PRESETS[name]
        return {**options, "progress": preset.progress, "env": {**preset.env, **(options.get("env") or {})}}

    @model_validator(mode="after")
    def _names_are_known(self) -> "CommandOptions":
        """Raise ValueError for an option that names a parameter or a file that the command does not have."""
        in_files = {name for values in self.files.values() for name in values}
        known = parameters((*self.command, *self.env.values())) | in_files
        for key, names in {
            "session": parameters(self.session),
            "learning": self.learning or (),
            "computed": self.computed,
            "samples_per_iteration": _operands(self.samples_per_iteration),
        }.items():
            if unknown := sorted({*names} - known):
                in_words = f"known: {', '.join(sorted(known))}"
                raise ValueError(f"{key}: {', '.join(unknown)}: in neither command, env nor files; {in_words}")
        if unknown := [name for name in self.files if name not in named_files(self.command)]:
            raise ValueError(f"files: {unknown[0]}: no word of the command names this YAML, TOML or JSON file")
        return self

    @model_validator(mode="after")
    def _nothing_is_said_twice(self) -> "CommandOptions":
        """Raise ValueError where samples are counted in two ways, or a computed value needs another computed value."""
        if self.samples_per_iteration and self._reads_samples:
            raise ValueError("samples_per_iteration: `progress` counts samples already; give only one of them")
        for name, text in self.computed.items():
            if stray := sorted(_operands(text) & self.computed.keys()):
                raise ValueError(f"computed.{name}: {stray[0]} is computed itself; write what it is computed from")
        return self

    @property
    def is_counted(self) -> bool:
        """Whether steps and samples are counted inside the trainer's processes."""
        counts = (self.progress, self.samples_per_iteration, self.session)
        return self.count == "inside" or (self.count is None and not any(counts))

    @property
    def command_parameters(self) -> frozenset[str]:
        """The parameters that the command, its environment and its files need from a config.

        A value in `computed` is no parameter itself, but the parameters in its arithmetic are.
        """
        operands = frozenset(name for text in self.computed.values() for name in _operands(text))
        in_files = frozenset(name for values in self.files.values() for name in values)
        in_words = parameters((*self.command, *self.env.values()))
        return ((in_words | in_files) - self.computed.keys()) | operands

    @property
    def words(self) -> tuple[str, ...]:
        """All words of the command, the session and the environment, which may have placeholders."""
        return (*self.command, *self.session, *self.env.values())

    @property
    def _reads_samples(self) -> bool:
        """Whether a pattern of `progress` reads the number of samples."""
        return any("samples" in _compiled(pattern).groupindex for pattern in self.progress)

    @property
    def counts_samples(self) -> bool | None:
        """Whether probes know their samples; None without patterns, because the training may report samples itself."""
        if self.samples_per_iteration or self._reads_samples:
            return True
        return False if self.progress else None
