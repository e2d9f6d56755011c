"""The reference of study files: a page that is written from the model, so that both always agree."""

import re
import runpy
from functools import cache
from pathlib import Path

import pytest
from pydantic import BaseModel

from tuner.study.parameter import AtLeast, ParameterSpec
from tuner.study.slurm_job import SlurmSpec
from tuner.study.spec import (
    EnvironmentSpec,
    Match,
    Override,
    Prices,
    ProbeSpec,
    PrunerSpec,
    SearchSpec,
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


def rows(part: str) -> dict[str, tuple[str, str, str]]:
    """Return type, default and meaning of each key of a part, as the page shows them."""
    sections = re.split(r"^## `(.*)`$", f"## ``\n{page()}", flags=re.MULTILINE)
    section = dict(zip(sections[1::2], sections[2::2], strict=True))[part]
    found = re.findall(r"^\| `(\w+)` \| (.*) \| (.*?) \| (.*?) \|$", section, re.MULTILINE)
    return {name: (kind, default, meaning) for name, meaning, default, kind in found}


def test_the_page_is_the_one_that_the_model_writes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python docs/study_file.py"


def test_every_part_of_the_model_has_a_section() -> None:
    assert set(re.findall(r"^## `(.*)`$", page(), re.MULTILINE)) == PARTS.keys() - {""}


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part or "study")
def test_every_key_has_its_type_its_default_and_its_meaning(part: str) -> None:
    shown = rows(part)
    assert shown.keys() == PARTS[part].model_fields.keys()
    for name, field in PARTS[part].model_fields.items():
        kind, default, meaning = shown[name]
        assert kind
        assert meaning
        assert (default == "**required**") == field.is_required()
        if isinstance(field.default, float | int | str) and field.default != "":
            number = f"{field.default:g}" if isinstance(field.default, float) else str(field.default)
            assert default == f"`{number.lower() if isinstance(field.default, bool) else number}`"


@pytest.mark.parametrize(
    ("part", "key", "kind"),
    [
        ("", "space", "name → keys"),
        ("", "constraints", "name → text"),
        ("", "overrides", "[keys, …]"),
        ("space.NAME", "ladder", "[integer ≥ 1, …] or `auto`"),
        ("space.NAME", "range", "[number, number]"),
        ("space.NAME", "choices", "[value, …]"),
        ("search", "sampler", "`gain`, `tpe` or `random`"),
        ("search", "seed", "integer ≥ 0, < 2147483648"),
        ("probe", "headroom_pct", "number ≥ 0, < 100"),
        ("probe", "warm", "`true` or `false`"),
        ("overrides", "probe", "name → value"),
    ],
)
def test_a_type_is_told_in_words(part: str, key: str, kind: str) -> None:
    assert rows(part)[key][0] == kind
