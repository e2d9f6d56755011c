"""Configuration files of a script: which values they hold, and copies of them with other values."""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from tuner.errors import TrainerError
from tuner.study import Value

FORMS = {".yaml": "yaml", ".yml": "yaml", ".toml": "toml", ".json": "json"}
"""The ending of a file → its form."""
MOST_BYTES = 1 << 20
"""A larger file holds no settings."""


def is_config(path: str) -> bool:
    """Return whether a file may hold settings that can be changed."""
    return Path(path).suffix.lower() in FORMS


def values_in(path: Path) -> dict[str, Value]:
    """Return the single values of a file: the keys to a value, joined by dots → the value; empty where unreadable."""
    try:
        return dict(_leaves(_read(path, _text(path)), ""))
    except TrainerError:
        return {}


def changed(path: Path, values: Mapping[str, Value]) -> str:
    """Return a file's text with other values; all else stays, comments too.

    Args:
        path: the file. It is only read.
        values: the keys to a value, joined by dots → its new value.

    Raises:
        TrainerError: where the file cannot be read, or has no such value.
    """
    text = _text(path)
    if FORMS.get(path.suffix.lower()) == "toml":
        return _with_toml(path, text, values)
    content = _read(path, text)
    for keys, value in values.items():
        _set(path, content, keys, value)
    if FORMS.get(path.suffix.lower()) == "json":
        return f"{json.dumps(content, indent=2)}\n"
    return as_yaml(content)


def copy_name(path: Path) -> Path:
    """Return the name of a changed copy beside a file: `train.tuner.yaml` for `train.yaml`."""
    return path.with_name(f"{path.stem}.tuner{path.suffix}")


def with_copies(words: Sequence[str], copies: Mapping[str, Path | str]) -> tuple[str, ...]:
    """Return the words of a command with the names of files replaced: the file as the command names it → its copy."""
    return tuple(_with_copy(word, copies) for word in words)


def is_named(name: str, words: Sequence[str]) -> bool:
    """Return whether a word of a command names a file, as a whole or behind `=`, so that a copy can take its place."""
    return any(word == name or word.endswith(f"={name}") for word in words)


def _with_copy(word: str, copies: Mapping[str, Path | str]) -> str:
    for name, copy in copies.items():
        if is_named(name, [word]):
            return f"{word.removesuffix(name)}{copy}"
    return word


def round_trip() -> YAML:
    """Return what reads and writes YAML so that order, comments, quotes and long lines stay as they are."""
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 1 << 16
    return yaml


def as_yaml(content: object) -> str:
    """Return the text of what `round_trip` has read."""
    written = StringIO()
    round_trip().dump(content, written)
    return written.getvalue()


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise TrainerError(f"{path} has over {MOST_BYTES} bytes, so it is not read for settings")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TrainerError(f"{path} cannot be read: {error}") from error


def _read(path: Path, text: str) -> Any:
    """Return the content of a configuration file. Raises TrainerError where the text has another form."""
    try:
        if FORMS.get(path.suffix.lower()) == "json":
            return json.loads(text)
        if FORMS.get(path.suffix.lower()) == "yaml":
            return round_trip().load(text)
        return tomllib.loads(text)
    except (ValueError, YAMLError, RecursionError) as error:
        raise TrainerError(f"{path} is not {path.suffix[1:]}: {error}") from error


def _leaves(content: object, before: str) -> Iterator[tuple[str, Value]]:
    for key, value in content.items() if isinstance(content, Mapping) else ():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{before}{key}.")
        elif isinstance(value, bool | int | float | str):
            yield f"{before}{key}", _plain(value)


def _plain(value: bool | int | float | str) -> Value:
    """Return a value without what its file says about its form."""
    return next(kind(value) for kind in (bool, int, float, str) if isinstance(value, kind))


def _set(path: Path, content: Any, keys: str, value: Value) -> None:
    *above, last = keys.split(".")
    for key in above:
        content = content.get(key) if isinstance(content, Mapping) else None
    if not isinstance(content, dict) or last not in content:
        raise TrainerError(f"{path} has no value {keys}")
    content[last] = value


def _with_toml(path: Path, text: str, values: Mapping[str, Value]) -> str:
    """Return a text of TOML with other values, changed line by line, so that comments and order stay."""
    heading_form = re.compile(r"^\s*\[(?P<name>[^\[\]]+)\]\s*(?:#.*)?$")
    setting_form = re.compile(r"^(?P<begin>\s*(?P<key>[\w.-]+)\s*=\s*)(?P<value>[^#\n]*?)(?P<end>\s*(?:#.*)?)$")
    left, section, lines = dict(values), "", []
    for line in text.split("\n"):
        if heading := heading_form.match(line):
            section = f"{heading['name'].strip()}."
        setting = setting_form.match(line)
        keys = f"{section}{setting['key']}" if setting else ""
        if setting and keys in left:
            lines.append(f"{setting['begin']}{json.dumps(left.pop(keys))}{setting['end']}")
        else:
            lines.append(line)
    if left:
        raise TrainerError(f"{path} has no value {next(iter(left))}")
    return "\n".join(lines)
