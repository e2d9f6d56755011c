"""Measures the sentences of this project's own texts: README, docs, and docstrings of the package."""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

RULE_WORDS = 25
"""The most words that a sentence should have, by the rule in docs/structure.md."""
LEAST_WORDS = 3
"""A shorter piece of text is a label, not a sentence."""
_CODE_BLOCK = re.compile(r"```.*?```", re.DOTALL)
_PARAGRAPH = re.compile(r"(?:^(?!\s*[|#!<├│└]).*\S.*\n?)+", re.MULTILINE)
_LIST_ITEM = re.compile(r"\n(?=\s*(?:[-*]|\d+\.)\s)")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_CODE = re.compile(r"`[^`]*`")
_END = re.compile(r"(?<=[.!?:;])\s+(?=[A-Z*`\"(])")
_WORD = re.compile(r"[A-Za-z0-9%][A-Za-z0-9%'-]*")


@dataclass(frozen=True, kw_only=True, slots=True)
class Sentence:
    """A sentence and the place where it stands."""

    path: Path
    line: int
    words: int
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Lengths:
    """How long the sentences of a group of texts are, in words."""

    sentences: int
    mean: float
    median: float
    longest: int
    above_rule_pct: float
    """The share of sentences with more than `RULE_WORDS` words."""


def lengths(sentences: Iterable[Sentence]) -> Lengths | None:
    """Return the lengths of the sentences, or None where there is no sentence."""
    words = [one.words for one in sentences]
    if not words:
        return None
    above = sum(count > RULE_WORDS for count in words)
    return Lengths(
        sentences=len(words),
        mean=fmean(words),
        median=median(words),
        longest=max(words),
        above_rule_pct=100.0 * above / len(words),
    )


def of_house(root: Path) -> dict[str, list[Sentence]]:
    """Return the sentences of README, of all pages below docs, and of the docstrings below tuner."""
    return {
        "README": list(of_page(root / "README.md")),
        "docs": [one for page in sorted((root / "docs").rglob("*.md")) for one in of_page(page)],
        "docstrings": [one for file in sorted((root / "tuner").rglob("*.py")) for one in of_docstrings(file)],
    }


def of_page(path: Path) -> Iterator[Sentence]:
    """Yield the sentences of a Markdown page."""
    yield from _sentences(path, path.read_text(encoding="utf-8"), 1)


def of_docstrings(path: Path) -> Iterator[Sentence]:
    """Yield the sentences of the docstrings of a Python file, those below constants and fields included."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield from _sentences(path, text, node.lineno)


def _sentences(path: Path, text: str, line: int) -> Iterator[Sentence]:
    """Yield the sentences of a text that begins on this line; code blocks, tables and headings are left out."""
    text = _CODE_BLOCK.sub(lambda block: "\n" * block.group().count("\n"), text)
    for paragraph in _PARAGRAPH.finditer(text):
        began = line + text.count("\n", 0, paragraph.start())
        for item in _LIST_ITEM.split(paragraph.group()):
            flat = _CODE.sub("code", _LINK.sub(r"\1", " ".join(item.split())))
            for part in _END.split(flat):
                words = len(_WORD.findall(part))
                if words >= LEAST_WORDS:
                    yield Sentence(path=path, line=began, words=words, text=part)
            began += item.count("\n") + 1
