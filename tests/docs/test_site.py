"""The documentation site has every page, without building it: `make docs` builds it and checks each link."""

import re
from collections.abc import Iterator
from typing import Any

from ruamel.yaml import YAML
from tests_docs import ROOT

import tuner

SITE = YAML(typ="safe").load(ROOT / "mkdocs.yml")


def pages(nav: list[Any]) -> Iterator[str]:
    """Yield the pages of a part of the navigation."""
    for entry in nav:
        for target in entry.values():
            yield from [target] if isinstance(target, str) else pages(target)


def test_every_page_has_one_place_in_the_navigation() -> None:
    placed = list(pages(SITE["nav"]))
    assert len(placed) == len(set(placed))
    ours = {"README.md", "CHANGELOG.md", "CONTRIBUTING.md"}
    assert set(placed) == ours | {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")}


def test_every_public_class_and_function_is_on_the_page() -> None:
    for name in sorted({name for name in tuner.__all__ if callable(getattr(tuner, name))}):
        shown = re.findall(r"^::: (\S+)$", (ROOT / "docs/python.md").read_text(encoding="utf-8"), re.MULTILINE)
        assert f"{getattr(tuner, name).__module__}.{getattr(tuner, name).__qualname__}" in shown


def test_nothing_on_the_site_is_fetched_from_a_network() -> None:
    assert SITE["theme"]["font"] is False
    assert "offline" in SITE["plugins"]


def test_no_page_holds_the_marks_of_a_merge() -> None:
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "benchmarks/results").glob("*.md"), *ROOT.glob("*.md")]
    marked = [
        page.name for page in pages if re.search(r"^(<<<<<<<|>>>>>>>) ", page.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert marked == []
