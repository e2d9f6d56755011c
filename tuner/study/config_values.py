"""Configuration files of a script: the values that they hold, and their text."""

import json
import tomllib
from collections.abc import Iterator, Mapping
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


def is_config(path: str) -> bool:
    """Return whether a file may hold settings that can be changed."""
    return Path(path).suffix.lower() in FORMS


def values_in(path: Path) -> dict[str, Value]:
    """Return the settings in a file: the keys to a value, joined by dots → the value; empty for an unreadable file."""
    return {keys: value for keys, value in values_or_null_in(path).items() if value is not None}


def values_or_null_in(path: Path) -> dict[str, Value | None]:
    """Return the settings in a file as `values_in`, and also those that the file sets to null."""
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
    """Yield the single values of a content, each after the keys to it: `before` and the keys, joined by dots.

    Lists are left out, because no setting is a part of a list.
    """
    if not isinstance(content, Mapping):
        return
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{before}{key}.")
        elif isinstance(value, bool | int | float | str | None):
            yield f"{before}{key}", None if value is None else _plain(value)


def _plain(value: bool | int | float | str) -> Value:
    """Return a value as one of Python's own types; `round_trip` returns subclasses that keep quotes and digits."""
    kinds = (bool, int, float, str)  # bool first, because true and false are integers, too
    return next(kind(value) for kind in kinds if isinstance(value, kind))
