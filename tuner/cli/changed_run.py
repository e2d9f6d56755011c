"""A copy of a study with other values, as the options `--set` of `tuner optimize` name them."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from tuner.errors import StudyError
from tuner.study import StudySpec, complaints


def changed_study(
    spec: StudySpec, settings: Sequence[str], max_seconds: float | None, cases: Sequence[str] = ()
) -> StudySpec:
    """Return a copy of a study with other values of some parameters, another limit of a probe, and a name of its own.

    The values hold for all cases and devices, so the copy has no overrides of them. The name is made from the changes,
    so that a second call with the same options continues the same study.

    Args:
        spec: the study.
        settings: texts such as `num_envs=44,40,39`; a ladder gets these rungs, and any other parameter these choices.
        max_seconds: the longest probe after its start, in seconds; None for the study's own limit.
        cases: globs of the cases of the copy; empty for the study's own. They do not change the name.

    Raises:
        StudyError: for a parameter that the study does not search, and for values that it cannot have.
    """
    raw = spec.model_dump(mode="json", exclude_unset=True)
    changes: list[str] = []  # in words, for the name
    for text in settings:
        name, equals, values = text.partition("=")
        if name not in spec.space:
            raise StudyError(f"--set {text}: {spec.name} does not search {name}; it searches {', '.join(spec.space)}")
        raw["space"][name] = _changed_parameter(spec, name, values if equals else "", text)
        _remove_from_overrides(raw, "space", name)
        changes += [value.strip() for value in values.split(",")]
    if max_seconds is not None:
        raw.setdefault("probe", {})["max_seconds"] = max_seconds
        _remove_from_overrides(raw, "probe", "max_seconds")
        changes.append(f"{max_seconds:g}s")
    if cases:
        raw["cases"] = [*cases]
    for key in ("fallback", "launch"):  # their effect is in the loaded study already
        raw.pop(key, None)
    name_in_words = "-".join([spec.name, *changes])
    raw["name"] = re.sub(r"[^A-Za-z0-9_.-]", "_", name_in_words)[:100]  # the most that study files allow
    try:
        return StudySpec.model_validate(raw)
    except ValidationError as error:
        raise StudyError(f"--set: {'; '.join(complaints(error, StudySpec))}") from error


def _changed_parameter(spec: StudySpec, name: str, values: str, text: str) -> dict[str, Any]:
    """Return a parameter of a study as a file writes it, with other values and the same conditions.

    `values` is a text such as `44,40,39`, and `text` the whole option, for an error. Raises StudyError where `values`
    cannot be read, or is empty.
    """
    before = spec.space[name]
    try:
        new_values = YAML(typ="safe").load(f"[{values}]")
    except YAMLError:
        new_values = None
    if not new_values:
        raise StudyError(f"--set {text}: write NAME=VALUE,VALUE, such as num_envs=44,40,39")
    kind = "ladder" if before.ladder is not None else "choices"
    conditions = before.model_dump(mode="json", include={"when"}, exclude_unset=True)
    return {kind: new_values, **conditions}


def _remove_from_overrides(raw: Mapping[str, Any], section: str, key: str) -> None:
    """Remove a key from a section of all overrides."""
    for override in raw.get("overrides", ()):
        override.get(section, {}).pop(key, None)
