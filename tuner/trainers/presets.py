"""What popular trainers print; `progress: sb3` names a row."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple


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
    rows: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    for row in rows.values():
        patterns = row["progress"]
        row["progress"] = tuple(rows[patterns]["progress"] if isinstance(patterns, str) else patterns)
        row["modules"] = tuple(row.get("modules", ()))
    return {name: Preset(**row) for name, row in rows.items()}


PRESETS: Mapping[str, Preset] = _presets()
"""Name → preset, as `presets.toml` lists them."""
