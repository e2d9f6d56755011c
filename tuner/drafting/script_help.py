"""Reads which flags a Python script has, from its own help: argparse, click, typer, Hydra, or settings as globals."""

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from tuner.drafting.command_lines import Flag, program_place, script

MOST_CHARACTERS = 400_000
"""The most characters of a help that are read. The help of Hugging Face's trainer has 60,000."""
_PARSES = re.compile(
    r"argparse|ArgumentParser|TrlParser|\b(?:click|typer|tyro|simple_parsing|draccus|jsonargparse|LightningCLI|absl)\b"
)
"""What a script that reads `--help` names. Any other script might begin to train."""
_HYDRA = re.compile(r"^\s*(?:import|from) hydra\b", re.MULTILINE)
_GLOBALS = re.compile(r"globals\(\)|configurator\.py")
"""What a script has that takes its flags from its own global settings, as nanoGPT does."""
_BEGINS = re.compile(r"^[\s│|]*(?P<flags>-{1,2}[A-Za-z][\w.-]*.*)$")
_SPELLING = re.compile(r"(?<![\w-])-{1,2}(?P<name>[A-Za-z][\w.-]*)")
_GAP = re.compile(r"\s{2,}(?!-|[A-Z_]+\b)|\s{2,}(?=[A-Z][a-z])")
_CHOICES = re.compile(r"\{([^{}]+)\}|\[([\w.+-]+(?:\|[\w.+-]+)+)\]")
_DEFAULT = re.compile(r"[\[(]default: ?\"?'?([^\])\"',;]*)")


def help_command(words: Sequence[str], python: str) -> tuple[str, ...]:
    """Return a command that prints the flags of a command's script; empty where none prints them for sure.

    The script is one in Python that names a reader of flags. No launcher is started, so there is one process.
    """
    place, source = program_place(words), source_of(words)
    if place is None or not (_PARSES.search(source) or _HYDRA.search(source)):
        return ()
    python = python or (words[0] if PurePath(words[0]).name.startswith("python") else "python3")
    module = () if words[place].endswith(".py") else ("-m",)
    asked = ("--cfg", "job") if _HYDRA.search(source) else ("--help",)
    before = [word for word in words[place + 1 :] if "=" in word and not word.startswith("-")] if asked[1:] else []
    return (python, *module, words[place], *before, *asked)


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


def known_flags(words: Sequence[str], ask: Callable[[Sequence[str]], str]) -> tuple[Flag, ...]:
    """Return the flags of a command's script. `ask` runs the command of `help_command`, and returns what it prints."""
    source = source_of(words)
    if _GLOBALS.search(source):
        return tuple(_globals(source))
    printed = ask(words)[:MOST_CHARACTERS]
    if _HYDRA.search(source):
        return tuple(_of_config(printed))
    defaults = dict(_defaults(source))
    return tuple(
        replace(flag, default=next((defaults[name] for name in flag.names if name in defaults), None))
        if flag.default is None
        else flag
        for flag in _printed(printed)
    )


def _defaults(source: str) -> Iterator[tuple[str, str]]:
    """Yield the flags of a script that uses argparse with their defaults, which its help need not show."""
    for call in _nodes(source):
        match call:
            case ast.Call(func=ast.Attribute(attr="add_argument"), args=names, keywords=keys):
                given = {key.arg: key.value.value for key in keys if isinstance(key.value, ast.Constant)}
                for name in names:
                    if isinstance(name, ast.Constant) and given.get("default") is not None:
                        yield str(name.value).lstrip("-"), str(given["default"])


def _nodes(source: str) -> Iterator[ast.AST]:
    try:
        yield from ast.walk(ast.parse(source))
    except (SyntaxError, ValueError, RecursionError):
        return


def _printed(text: str) -> Iterator[Flag]:
    """Yield the flags of a printed help. A flag begins a line; its default may stand in the lines below."""
    entries: list[list[str]] = []
    for line in text.splitlines():
        plain = line.strip().strip("│|").strip()
        if found := _BEGINS.match(line):
            entries.append([found["flags"].strip().strip("│|").strip()])
        elif entries and plain:
            entries[-1].append(plain)
    for first, *below in entries:
        head = _GAP.split(first, maxsplit=1)[0]
        named = dict.fromkeys(name["name"] for name in _SPELLING.finditer(head))
        names = tuple(name for name in named if not (name.startswith("no") and name[2:].lstrip("-_") in named))
        metavars = _SPELLING.sub("", re.sub(r"\{[^{}]*\}", "X", head)).replace(",", " ").replace("/", " ").split()
        listed = _CHOICES.search(head) or _CHOICES.search(first)
        choices = tuple(map(str.strip, re.split(r"[,|]", listed[1] or listed[2]))) if listed else ()
        default = _DEFAULT.search(" ".join([first, *below]))
        value = default[1].strip() if default else None
        if names and names != ("h", "help"):
            yield Flag(
                names=tuple(sorted(names, key=len, reverse=True)),
                choices=choices,
                default=value,
                is_switch=all(one.startswith("[") for one in metavars) and not choices and value not in {"True", "on"},
            )


def _of_config(text: str) -> Iterator[Flag]:
    """Yield the values of a config that Hydra prints, each with its path as its name."""
    try:
        config = YAML(typ="safe").load(text)
    except (YAMLError, ValueError):
        return
    yield from _leaves(config, "")


def _leaves(config: object, path: str) -> Iterator[Flag]:
    for key, value in config.items() if isinstance(config, Mapping) else ():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{path}{key}.")
        elif isinstance(value, str | int | float):
            yield Flag(names=(f"{path}{key}",), default=str(value))


def _globals(source: str) -> Iterator[Flag]:
    """Yield the settings at the top of a script that takes its flags as `--name=value`."""
    top = next(_nodes(source), None)
    for line in top.body if isinstance(top, ast.Module) else ():
        match line:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=own)) if own is not None:
                yield Flag(names=(name,), default=str(own))
