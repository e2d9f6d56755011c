"""The options of a trainer that is any command line: placeholders, which a config fills, and presets of progress."""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from string import Formatter
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from tuner import study
from tuner.probe import SCORE_GROUP


class TemplatePiece(NamedTuple):
    """A piece of a word: a text, and the placeholder after it."""

    text: str
    name: str | None
    """None where no placeholder follows."""
    is_flag: bool
    """Whether the placeholder is a flag that is there or not: `{flag:name}`."""
    is_reference: bool = False
    """Whether the text is a reference to a variable, as it is written."""


def placeholders(words: Iterable[str]) -> frozenset[str]:
    """Return the names of the placeholders in `words`.

    Raises ValueError for a stray brace, and for anything but `name` or `flag:name` between braces.
    """
    return frozenset(piece.name for word in words for piece in pieces(word) if piece.name is not None)


def flags(words: Iterable[str]) -> frozenset[str]:
    """Return the names of the placeholders `{flag:name}` in `words`. Raises the errors of `placeholders`."""
    return frozenset(piece.name for word in words for piece in pieces(word) if piece.name and piece.is_flag)


def pieces(word: str) -> list[TemplatePiece]:
    """Return the pieces of a word, each up to the end of a placeholder or reference. Raises as `placeholders` does.

    `${HOME}/run-{seed}.log` has three: the reference, then `/run-` with the placeholder `seed`, then `.log`.
    """
    split: list[TemplatePiece] = []
    for is_reference, parts_in_a_row in groupby(study.parts(word), key=lambda part: part.is_reference):
        if is_reference:
            split += [TemplatePiece(part.literal, None, is_flag=False, is_reference=True) for part in parts_in_a_row]
        else:  # only a literal such as `${A}`, written as `$${A}`, has a name: its braces hold no placeholder
            doubled = str.maketrans({"{": "{{", "}": "}}"})  # literal braces to `Formatter`
            literals = (part.literal.translate(doubled) if part.name else part.literal for part in parts_in_a_row)
            split += [_piece(word, *field) for field in Formatter().parse("".join(literals))]
    return split


class Reference(str):
    """A value that a probe looks up at its start, such as `${SLURM_NODEID}`."""

    __slots__ = ()


def fill(words: Sequence[str], values: Mapping[str, object], *, to_launch: bool = False) -> tuple[str, ...]:
    """Return words with `values` in place of placeholders.

    A word with a placeholder without a value is left out, and so is the flag before it if the word is its value: both
    words of `--envs {num_envs}`, and only the second of `--headless --envs={num_envs}`. `{flag:name}` becomes `--name`
    where the value is True, and otherwise nothing; a word that is then empty is left out.

    With `to_launch`, the result is text with references, which a probe looks up at its start: those of the words, and
    each value that is a `Reference`. Any other value that is spelled like a reference is escaped, so that it stays.
    """
    filled: list[str] = []
    before = ""
    for word in words:
        pieces_of_word = pieces(word)
        if all(piece.is_flag or piece.name is None or piece.name in values for piece in pieces_of_word):
            texts = [text for piece in pieces_of_word for text in _texts(piece, values)]
            filled_word = study.joined(texts) if to_launch else "".join(text for text, _ in texts)
            if filled_word or not any(piece.is_flag for piece in pieces_of_word):
                filled.append(filled_word)
        # the value of the flag before it, not a word such as `--envs={num_envs}` or `env.num_envs={num_envs}`
        elif re.fullmatch(r"--?[A-Za-z][\w.-]*", before) and not re.match(r"-|[+~@\w.-]+=", word):
            filled.pop()
        before = word
    return tuple(filled)


def _piece(word: str, text: str, name: str | None, spec: str | None, conversion: str | None) -> TemplatePiece:
    """Return the piece for what `Formatter` splits off a word: a text, and the name, format and conversion of a field.

    To `Formatter`, `{flag:name}` is the field `flag` with the format `name`. Raises ValueError, with the `word`, for
    any other format, and for a conversion such as `!r`.
    """
    is_flag = name == "flag" and bool(spec)
    if is_flag:
        name, spec = spec, None
    if name is not None and (not re.fullmatch(r"[A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*)*", name) or spec or conversion):
        raise ValueError(f"{word!r} holds a placeholder that is not {{name}} or {{flag:name}}; double a literal brace")
    return TemplatePiece(text, name, is_flag)


def _texts(piece: TemplatePiece, values: Mapping[str, object]) -> list[tuple[str, bool]]:
    """Return the texts that a piece becomes with `values`, each with whether it is a reference to a variable."""
    value = "" if piece.name is None else values.get(piece.name)
    if isinstance(value, Reference):
        return [(piece.text, piece.is_reference), (value, True)]
    if piece.is_flag:
        value = f"--{piece.name}" if value is True else ""
    return [(piece.text + study.value_text(value), piece.is_reference)]


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
    return study.Expression(text).names - COUNTS if text else frozenset()


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
    BeforeValidator(lambda command: study.shell_split(command) if isinstance(command, str) else command),
]
"""A command line: a list of words, or one text in shell quoting; no shell runs it."""
Arithmetic = Annotated[
    str,
    BeforeValidator(lambda given: str(given) if type(given) in {int, float} else given),
    AfterValidator(lambda text: text and study.Expression(text).text),
]
"""Arithmetic with placeholders, or a number; may be empty."""


class CommandOptions(study.Strict):
    """The keys that `trainer.options` may have."""

    command: Words = Field(min_length=1)
    cases: tuple[study.Name, ...] = Field(default=("command",), min_length=1, max_length=study.MOST_CASES)
    progress: Annotated[tuple[str, ...], AfterValidator(_checked_patterns)] = ()
    """Regular expressions for printed lines, or the name of a preset; `LinePatterns` describes their groups."""
    count: Literal["inside", "printed"] | None = None
    """What counts steps and samples: our code inside the trainer's processes, or what the trainer prints. By default,
    inside where no other key says how progress is read."""
    protect: bool = True
    """Whether a probe leaves the files in the folders of the command as they were."""
    keeps: tuple[Literal["batch", "sample", "model", "optimizer", "precision", "loss"], ...] = ()
    """The parts of the training that no config may change, compared with the first value of each parameter."""
    unset: dict[study.Name, study.Value] = Field(default_factory=dict)
    """Parameter → the value at which its flag is left out, because the trainer has this value without the flag."""
    cwd: str = ""
    """The folder to run in, relative to `trainer.root`, which is relative to the folder where `tuner` is started."""
    env: Annotated[
        study.Variables, AfterValidator(lambda env: {name: _checked_word(text) for name, text in env.items()})
    ] = Field(default_factory=dict)
    """Environment variables. Their values may have placeholders."""
    files: dict[str, dict[study.Name, str]] = Field(default_factory=dict)
    """Configuration file, as the command names it → parameter → the keys to its value in the file, joined by dots. A
    probe gets a changed copy."""
    computed: dict[study.Name, Annotated[str, AfterValidator(lambda text: study.Expression(text).text)]] = Field(
        default_factory=dict
    )
    """Placeholder → its value as arithmetic with others, such as `'64 / {batch_size}'` for a total batch that stays."""
    samples_per_iteration: Arithmetic = ""
    """The samples that all ranks together collect in an iteration."""
    flops_per_sample: float | None = Field(default=None, gt=0)
    """The floating-point operations of a training step for each of its samples, for the metric `mfu`."""
    session: Words = ()
    """The command line that serves a session; without it, every probe runs `command`."""
    learning: Annotated[
        tuple[study.Name, ...] | None, BeforeValidator(lambda names: () if names == "keep" else names)
    ] = None
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
        if unknown := [name for name in self.files if name not in study.named_files(self.command)]:
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
