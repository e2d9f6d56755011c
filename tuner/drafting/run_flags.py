"""Which flags a command's script has, with the values in force: as its parser has told in the run, or as globals."""

import ast
import operator
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

from tuner.count import Flag, ProcessCounts
from tuner.drafting.command_lines import script
from tuner.trainers.config_files import is_config, values_in

_HYDRA = re.compile(r"^\s*(?:import|from) hydra\b", re.MULTILINE)
_GLOBALS = re.compile(r"globals\(\)|configurator\.py")
"""What a script has that takes its flags from its own global settings, as nanoGPT does."""
_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}
"""Operators of constant settings such as `5 * 8`."""
MOST_POWER = 64
"""The largest exponent that is computed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFlags:
    """The flags of a script, and how they are known."""

    flags: tuple[Flag, ...] = ()
    is_known: bool = False
    """Whether these are all flags of the script: a parser has told them, or it reads no words at all."""
    reader: str = ""
    """What reads them, such as `argparse`; empty where nothing is known to."""


def flags_of(processes: Sequence[ProcessCounts], words: Sequence[str]) -> RunFlags:
    """Return the flags of a command's script.

    Args:
        processes: what the processes of a run have told, those that train among them.
        words: the command line.

    Returns:
        The flags that the parser of a training process has parsed, or else that of the script's first process. A script
        that takes its flags from its globals has those. Flags of launchers are none of the script.
    """
    name = PurePath(script(words) or "").name
    own = [process for process in processes if process.argv and PurePath(process.argv[0]).name == name]
    parsed = [process for process in (*(one for one in processes if one.trains), *own) if process.flags]
    if parsed:
        return RunFlags(flags=parsed[0].flags, is_known=True, reader=parsed[0].parser)
    source = source_of(words)
    if _GLOBALS.search(source):
        return RunFlags(flags=tuple(_settings(source, words)), is_known=True, reader="its global settings")
    is_deaf = bool(own) and not any(process.reads_argv for process in own) and any(one.trains for one in processes)
    return RunFlags(is_known=is_deaf)


def flags_in_files(processes: Sequence[ProcessCounts]) -> Iterator[Flag]:
    """Yield the values of the configuration files that the command names and the script has read.

    The name of such a flag is `train.yaml:train.batch_size`: the file as the command names it, and the keys.
    """
    files = {word: path for process in processes for path, word in process.files.items()}
    for word, path in files.items():
        name = word.rpartition("=")[2] if word.startswith("-") else word
        for keys, value in values_in(Path(path)).items() if is_config(path) else ():
            yield Flag(names=(f"{name}:{keys}",), value=str(value))


def source_of(words: Sequence[str]) -> str:
    """Return the text of a command's script; empty where it cannot be read."""
    name = script(words)
    try:
        return Path(name).read_text(encoding="utf-8") if name else ""
    except (OSError, UnicodeDecodeError):
        return ""


def uses_hydra(words: Sequence[str]) -> bool:
    """Return whether a command's script reads its flags by Hydra."""
    return bool(_HYDRA.search(source_of(words)))


def _settings(source: str, words: Sequence[str]) -> Iterator[Flag]:
    """Yield the settings at the top of a script that takes its flags as `--name=value`, with those of its config files.

    A word without dashes is such a file, as in `train.py config/train_gpt2.py`.
    """
    found = dict(_constants(source))
    for word in words:
        if word.endswith(".py") and not word.startswith("-") and word != script(words):
            found |= {name: value for name, value in _constants(_text(word)) if name in found}
    pairs = (word.lstrip("-").partition("=") for word in words if word.startswith("--") and "=" in word)
    typed = {name: value for name, _, value in pairs}
    for name, value in found.items():
        flag = Flag(names=(name,), value=str(value))
        yield replace(flag, value=typed[name], typed=True) if name in typed else flag


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _constants(source: str) -> Iterator[tuple[str, object]]:
    try:
        top = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return
    for line in top.body:
        match line:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                constant = _constant(value)
                if isinstance(constant, int | float | str):
                    yield name, constant


def _constant(node: ast.expr) -> object:
    """Return the value of a constant or of arithmetic with constants; None for anything else."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _computed(op, _constant(left), _constant(right))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _computed(ast.Sub(), 0, _constant(operand))
    return None


def _computed(op: ast.operator, first: object, second: object) -> int | float | None:
    if not isinstance(first, int | float) or not isinstance(second, int | float):
        return None
    if isinstance(op, ast.Pow) and abs(second) > MOST_POWER:
        return None
    try:
        return _OPERATORS[type(op)](first, second)
    except (ArithmeticError, ValueError):
        return None
