"""Configuration files of a script in YAML, TOML or JSON: the values in them, and copies with other values."""

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from tuner.errors import TrainerError
from tuner.study.space import Value

FORMS = {".yaml": "yaml", ".yml": "yaml", ".toml": "toml", ".json": "json"}
"""The ending of a file → its form."""
MOST_BYTES = 1 << 20
"""A larger file holds no settings."""


def values_in(path: Path) -> dict[str, Value]:
    """Return the settings in a file: keys such as `model.width` → the value; empty for an unreadable file."""
    return {keys: value for keys, value in values_or_null_in(path).items() if value is not None}


def values_or_null_in(path: Path) -> dict[str, Value | None]:
    """Return the settings in a file as `values_in` does, and also those that the file sets to null, as None."""
    try:
        return dict(_leaves(config_content(path, config_text(path)), ""))
    except TrainerError:
        return {}


def round_trip() -> YAML:
    """Return a reader and writer of YAML with which order, comments, quotes and long lines stay as they are."""
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 1 << 16
    return yaml


def as_yaml(content: object) -> str:
    """Return the YAML text of content that `round_trip` has read, perhaps with other values."""
    text = StringIO()
    round_trip().dump(content, text)
    return text.getvalue()


def config_text(path: Path) -> str:
    """Return the text of a configuration file. Raises TrainerError where it cannot be read."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise TrainerError(f"{path} has over {MOST_BYTES} bytes, so it is not read for settings")
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise TrainerError(f"{path} cannot be read: {error}") from error


def config_content(path: Path, text: str) -> Any:
    """Return the content of a configuration file. Raises TrainerError where the text has another form."""
    try:
        if FORMS.get(path.suffix.lower()) == "json":
            return json.loads(text)
        if FORMS.get(path.suffix.lower()) == "yaml":
            return round_trip().load(text)
        return tomllib.loads(text)
    except (ValueError, YAMLError, RecursionError) as error:
        raise TrainerError(f"{path} is not {path.suffix[1:]}: {error}") from error


def _leaves(content: object, before: str) -> Iterator[tuple[str, Value | None]]:
    """Yield each single value of a file's content, after the keys to it, joined by dots; `before` begins these keys.

    Lists are left out, because no setting is a part of a list.
    """
    if not isinstance(content, Mapping):
        return
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{before}{key}.")
        elif value is None:
            yield f"{before}{key}", None
        elif isinstance(value, bool | int | float | str):
            # as one of Python's own types, because `round_trip` returns subclasses that keep quotes and digits
            kind = next(kind for kind in (bool, int, float, str) if isinstance(value, kind))  # bool is an int, too
            yield f"{before}{key}", kind(value)


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
        *above, last = keys.split(".")
        part = content
        for key in above:
            part = part.get(key) if isinstance(part, Mapping) else None
        if not isinstance(part, dict) or last not in part:
            raise TrainerError(f"{path} has no value {keys}")
        part[last] = value
    if FORMS.get(path.suffix.lower()) == "json":
        return f"{json.dumps(content, indent=2)}\n"
    return as_yaml(content)


def copy_name(path: Path, out_dir: Path | None = None) -> Path:
    """Return the path of a changed copy beside a file: `train.tuner.yaml` for `train.yaml`.

    A study of several objectives has several best configs, the members of a front. The `out_dir` of a member ends in
    its number, such as `best/CASE/0012`, and its copy has the number, too: `train.tuner-0012.yaml`. A single best
    config has the `out_dir` `best/CASE`, and its copy no number, even if the case is named 2024.
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
            if word == name or word.endswith(f"={name}"):
                return f"{word.removesuffix(name)}{copy}"
        return word

    return tuple(map(with_copy, words))


def named_files(words: Sequence[str]) -> list[str]:
    """Return the configuration files that words of a command name, as a whole or behind `--flag=` or `key=`."""
    # a folder may be called `lr=0.1`; `os.path.isfile` is False also for a word that is too long for a name
    names = [word if os.path.isfile(word) else re.sub("^[^/=]*=", "", word) for word in words]  # noqa: PTH113
    return [name for name in names if Path(name).suffix.lower() in FORMS]


def _with_toml(path: Path, text: str, values: Mapping[str, Value]) -> str:
    """Return a text of TOML with other values, changed line by line, so that comments and order stay.

    `values`: the keys to a value, joined by dots → the new value. Raises TrainerError where the text lacks one of them.
    """
    # of `[name]`, or of an array of tables, `[[name]]`: this name keeps its brackets, so no keys lead into it
    heading_form = re.compile(r"^\s*\[(?P<name>[^\[\]]+|\[[^\[\]]+\])\]\s*(?:#.*)?$")
    value_form = r"""(?:"[^"]*"|'[^']*'|[^#]*?)"""  # a # between quotes begins no comment
    setting_form = re.compile(rf"^(?P<begin>\s*(?P<key>[\w.-]+)\s*=\s*){value_form}(?P<end>\s*(?:#.*)?)$")
    missing = dict(values)  # values that no line has got yet
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
