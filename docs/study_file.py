"""Write docs/study_file.md from the strict model of study files: keys, meanings, defaults and values.

python docs/study_file.py
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tuner.study.parameter import MOST
from tuner.study.spec import StudySpec

_Schema = Mapping[str, Any]
"""A part of a JSON schema."""

_INTRODUCTION = """\
# All keys of a study file

[Study files](studies.md) explains the keys. Brackets hold the default, and allowed values that are not obvious. Numbers
are positive."""

_PAGES = {
    "trainer": "[the options of `command`](command.md#options)",
    "probe": "[what is measured](measuring.md)",
    "search": "[how a study is searched](sampler.md)",
    "slurm": "[several nodes](nodes.md)",
}
"""Part of a study file → the pages that explain the part."""

_SIGNS = {
    "≥": ("ge", "minimum"),
    ">": ("gt", "exclusiveMinimum"),
    "≤": ("le", "maximum"),
    "<": ("lt", "exclusiveMaximum"),
}
"""Sign of a bound → the words for the bound in pydantic and in JSON schema."""
_PLAIN = {"boolean", "string", "object"}
"""The types that go without saying."""
_OBVIOUS = {"integer ≥ 1", "integer > 0", "number > 0"}
"""Types whose bound goes without saying. Beside a default, the type does, too."""
_SCALARS = {"boolean", "integer", "number", "string"}
_WORDS = {"boolean": "`true` or `false`", "integer": "integer", "number": "number", "string": "text", "object": "keys"}


def reference() -> str:
    """Return the reference of study files as a Markdown page."""
    schema = StudySpec.model_json_schema()
    return "\n\n".join([_INTRODUCTION, *_part("", schema, schema["$defs"])]) + "\n"


def _part(path: str, model: _Schema, models: Mapping[str, _Schema]) -> Iterator[str]:
    """Yield the section of a part of the study file, then those of the parts inside the part."""
    if path:
        more = f" More: {_PAGES[path]}." if path in _PAGES else ""
        yield f"## `{path}`"
        yield f"{model['description']}{more}"
    required = model.get("required", ())
    rows = [_row(name, path, schema, needed=name in required) for name, schema in model["properties"].items()]
    yield "\n".join(rows)
    for name, schema in model["properties"].items():
        for inside, target in _inside(f"{path}.{name}".lstrip("."), schema):
            yield from _part(inside, models[target], models)


def _inside(path: str, schema: _Schema) -> Iterator[tuple[str, str]]:
    """Yield the paths and names of the models that a value contains."""
    if "$ref" in schema:
        yield path, schema["$ref"].rpartition("/")[2]
    for alternative in schema.get("anyOf", ()):
        yield from _inside(path, alternative)
    if isinstance(of_each := schema.get("additionalProperties"), dict):
        yield from _inside(f"{path}.NAME", of_each)
    if "items" in schema:
        yield from _inside(path, schema["items"])


def _row(name: str, path: str, schema: _Schema, *, needed: bool) -> str:
    parts = [inside for inside, _ in _inside(f"{path}.{name}".lstrip("."), schema)]
    see = f"[below](#{parts[0].replace('.', '').lower()})" if parts else ""
    meaning = "; ".join(text for text in (" ".join(schema.get("description", "").split()), see) if text)
    default = "**required**" if needed else _default(schema, part=bool(parts))
    kind = "" if parts or (schema.get("type") in _PLAIN and "enum" not in schema) else _type(schema)
    if kind in _OBVIOUS:
        kind = "" if default else kind.split()[0]
    values = "; ".join(text for text in (default, kind) if text)
    return f"- `{name}`: {meaning}{f' ({values})' if values else ''}"


def _default(schema: _Schema, *, part: bool) -> str:
    default = schema.get("default")
    if default in (None, "", [], {}) or (part and isinstance(default, dict)):
        return ""
    number = f"{default:g}" if isinstance(default, float) else None
    return f"`{number or (default if isinstance(default, str) else json.dumps(default))}`"


def _type(schema: _Schema) -> str:
    match schema:
        case {"$ref": _}:
            text = "keys"
        case {"const": value}:
            text = f"`{value}`"
        case {"enum": values}:
            text = _either([f"`{value}`" for value in values])
        case {"anyOf": schemas}:
            text = _any_of([schema for schema in schemas if schema.get("type") != "null"])
        case {"prefixItems": schemas}:
            text = f"[{', '.join(map(_type, schemas))}]"
        case {"items": of_each}:
            text = f"[{_type(of_each)}, …]"
        case {"additionalProperties": True}:
            text = "name → value"
        case {"additionalProperties": of_each}:
            text = f"name → {_type(of_each)}"
        case {"patternProperties": by_pattern}:
            text = f"name → {_either([_type(of_each) for of_each in by_pattern.values()])}"
        case _:
            text = _WORDS[schema["type"]] + _bounds(schema)
    return text


def _any_of(schemas: list[_Schema]) -> str:
    scalars = [schema for schema in schemas if schema.get("type") in _SCALARS]
    if {schema["type"] for schema in scalars} < _SCALARS:
        return _either([_type(schema) for schema in schemas])
    return _either(["value", *(_type(schema) for schema in schemas if schema not in scalars)])


def _bounds(schema: _Schema) -> str:
    """Return the bounds of a number, without those that only keep floats exact."""
    bounds = [(sign, schema[word]) for sign, words in _SIGNS.items() for word in words if word in schema]
    shown = [f"{sign} {bound}" for sign, bound in bounds if abs(bound) < MOST]
    return f" {', '.join(shown)}" if shown else ""


def _either(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]


if __name__ == "__main__":
    Path(__file__).with_suffix(".md").write_text(reference(), encoding="utf-8")
