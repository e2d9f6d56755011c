"""Configuration files of a script: copies of them with other values."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.errors import TrainerError
from tuner.study import FORMS, Value, as_yaml, config_content, config_text, is_config


def changed_text(path: Path, values: Mapping[str, Value]) -> str:
    """Return a file's text with other values; all else stays, comments too.

    Args:
        path: the file. It is only read.
        values: the keys to a value, joined by dots, such as `model.width` → the new value.

    Raises:
        TrainerError: where the file cannot be read, or has no such value.
    """
    text = config_text(path)
    if FORMS.get(path.suffix.lower()) == "toml":
        return _with_toml(path, text, values)
    content = config_content(path, text)
    for keys, value in values.items():
        _set(path, content, keys, value)
    if FORMS.get(path.suffix.lower()) == "json":
        return f"{json.dumps(content, indent=2)}\n"
    return as_yaml(content)


def copy_name(path: Path, out_dir: Path | None = None) -> Path:
    """Return the name of a changed copy beside a file: `train.tuner.yaml` for `train.yaml`.

    Where several members of a front are trained, each member has an `out_dir` such as `best/CASE/0012`, and its copy
    has the number, too: `train.tuner-0012.yaml`. A single member has the `out_dir` `best/CASE`, and its copy no number,
    even where the case is named 2024.
    """
    is_member = out_dir and out_dir.parents[1].name == "best" and re.fullmatch(r"\d{4,}", out_dir.name)
    number = f"-{out_dir.name}" if out_dir and is_member else ""
    return path.with_name(f"{path.stem}.tuner{number}{path.suffix}")


def with_copies(words: Sequence[str], copies: Mapping[str, Path | str]) -> tuple[str, ...]:
    """Return the words of a command with copies in place of files.

    `copies`: a file, as the command names it → its copy.
    """

    def with_copy(word: str) -> str:
        """Return a word with the copy in place of a file that it names, also behind `--file=`."""
        for name, copy in copies.items():
            if is_named(name, [word]):
                return f"{word.removesuffix(name)}{copy}"
        return word

    return tuple(map(with_copy, words))


def is_named(name: str, words: Sequence[str]) -> bool:
    """Return whether a word of a command names a file, as a whole or behind `=`, so that a copy can take its place."""
    return any(word == name or word.endswith(f"={name}") for word in words)


def named_files(words: Sequence[str]) -> list[str]:
    """Return the configuration files that words of a command name, as a whole or behind `=`."""
    names = [word.rpartition("=")[2] for word in words]
    return [name for name in names if is_config(name)]


def _set(path: Path, content: Any, keys: str, value: Value) -> None:
    """Set a value in the content of a file, by its keys. Raises TrainerError where the file has no such value."""
    *above, last = keys.split(".")
    for key in above:
        content = content.get(key) if isinstance(content, Mapping) else None
    if not isinstance(content, dict) or last not in content:
        raise TrainerError(f"{path} has no value {keys}")
    content[last] = value


def _with_toml(path: Path, text: str, values: Mapping[str, Value]) -> str:
    """Return a text of TOML with other values, changed line by line, so that comments and order stay.

    `values`: as in `changed_text`. Raises TrainerError where the text lacks one of them.
    """
    # of `[name]`, or of an array of tables, `[[name]]`: this name keeps its brackets, so no keys lead into it
    heading_form = re.compile(r"^\s*\[(?P<name>[^\[\]]+|\[[^\[\]]+\])\]\s*(?:#.*)?$")
    value_form = r"""(?:"[^"]*"|'[^']*'|[^#]*?)"""  # a # between quotes begins no comment
    setting_form = re.compile(rf"^(?P<begin>\s*(?P<key>[\w.-]+)\s*=\s*){value_form}(?P<end>\s*(?:#.*)?)$")
    missing = dict(values)  # those not met yet
    section = ""  # the keys of the table, with a dot behind them
    lines: list[str] = []
    for line in text.split("\n"):
        if heading := heading_form.match(line):
            section = f"{heading['name'].strip()}."
        setting = setting_form.match(line)
        keys = f"{section}{setting['key']}" if setting else ""
        if setting and keys in missing:
            lines.append(f"{setting['begin']}{json.dumps(missing.pop(keys))}{setting['end']}")
        else:
            lines.append(line)
    if missing:
        raise TrainerError(f"{path} has no value {next(iter(missing))}")
    return "\n".join(lines)
