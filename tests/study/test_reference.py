"""The reference of study files: a page that is written from the model, so that both always agree."""

import re
import runpy
from functools import cache
from pathlib import Path

import pytest
from pydantic import BaseModel

from tuner.study.parameter import AtLeast, ParameterSpec
from tuner.study.spec import (
    EnvironmentSpec,
    Match,
    Override,
    Prices,
    ProbeSpec,
    PrunerSpec,
    SearchSpec,
    SlurmSpec,
    SoakSpec,
    StudySpec,
    TrainerSpec,
)

PAGE = Path(__file__).parents[2] / "docs/study_file.md"

PARTS: dict[str, type[BaseModel]] = {
    "": StudySpec,
    "trainer": TrainerSpec,
    "space.NAME": ParameterSpec,
    "space.NAME.when.NAME": AtLeast,
    "probe": ProbeSpec,
    "search": SearchSpec,
    "soak": SoakSpec,
    "pruner": PrunerSpec,
    "environment": EnvironmentSpec,
    "prices": Prices,
    "slurm": SlurmSpec,
    "overrides": Override,
    "overrides.match": Match,
}


@cache
def page() -> str:
    return runpy.run_path(str(PAGE.with_suffix(".py")))["reference"]()


def keys(part: str) -> dict[str, str]:
    """Return what the page says of each key of a part: its meaning, and in brackets its default and its values."""
    sections = re.split(r"^## `(.*)`$", f"## ``\n{page()}", flags=re.MULTILINE)
    section = dict(zip(sections[1::2], sections[2::2], strict=True))[part]
    return dict(re.findall(r"^- `(\w+)`: (.+)$", section, re.MULTILINE))


def test_the_page_is_the_one_that_the_model_writes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python docs/study_file.py"


def test_every_part_of_the_model_has_a_section() -> None:
    assert set(re.findall(r"^## `(.*)`$", page(), re.MULTILINE)) == PARTS.keys() - {""}


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part or "study")
def test_every_key_has_its_meaning_and_its_default(part: str) -> None:
    shown = keys(part)
    assert shown.keys() == PARTS[part].model_fields.keys()
    for name, field in PARTS[part].model_fields.items():
        assert ("(**required**" in shown[name]) == field.is_required()
        if isinstance(field.default, float | int | str) and field.default != "":
            number = f"{field.default:g}" if isinstance(field.default, float) else str(field.default)
            assert f"(`{number.lower() if isinstance(field.default, bool) else number}`" in shown[name]


def test_a_type_is_told_in_words() -> None:
    for part, key, kind in [
        ("space.NAME", "ladder", "[integer ≥ 1, …] or `auto`"),
        ("space.NAME", "range", "[number, number]"),
        ("space.NAME", "choices", "[value, …]"),
        ("search", "sampler", "`gain`, `tpe` or `random`"),
        ("search", "seed", "integer ≥ 0, < 2147483648"),
        ("probe", "headroom_pct", "number ≥ 0, < 100"),
    ]:
        assert f"{kind})" in keys(part)[key]
