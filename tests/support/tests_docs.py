"""The fenced blocks and the inline code of README and docs, with their places."""

import shlex
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
OTHERS = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")
PAGES = (*(ROOT / name for name in OTHERS), *sorted((ROOT / "docs").glob("*.md")))


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """A piece of code on a page. `language` is that of a fenced block, `inline` for code in a sentence, or `link`."""

    page: str
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        """Return the place for the id of a test."""
        return f"{self.page}:{self.line}"


def shown(*languages: str) -> list[Shown]:
    """Return all pieces in one of these languages, or in any, page by page."""
    return [piece for page in PAGES for piece in _pieces(page) if not languages or piece.language in languages]


def of(page: str, language: str) -> list[Shown]:
    """Return the pieces of one page in one language."""
    return [piece for piece in shown(language) if piece.page == page]


def commands(program: str) -> list[Shown]:
    """Return all command lines of a program, after `$ ` in a console block or inline, without comments."""
    lines = [(piece, line) for piece in shown("console") for line in piece.text.splitlines()]
    found = [(piece, line[2:]) for piece, line in lines if line.startswith("$ ")]
    found += [(piece, piece.text) for piece in shown("inline")]
    return [
        Shown(page=piece.page, line=piece.line, language=piece.language, text=shlex.join(words))
        for piece, text in found
        if text.split(" ")[0] == program and (words := shlex.split(text, comments=True))
    ]


@cache
def _pieces(page: Path) -> tuple[Shown, ...]:
    """Parse a page once: both test files of the pages ask several times, in each test process."""
    pieces: list[Shown] = []
    tokens = MarkdownIt().enable("table").parse(page.read_text(encoding="utf-8"))
    line = 0
    for token in tokens:
        line = token.map[0] + 1 if token.map else line
        if token.type == "fence":
            pieces.append(Shown(page=page.name, line=line, language=token.info.strip(), text=token.content))
        for child in token.children or ():
            if child.type == "code_inline":
                pieces.append(Shown(page=page.name, line=line, language="inline", text=child.content))
            target = str(child.attrs.get("href") or child.attrs.get("src") or "")
            if target and not target.startswith("http"):
                pieces.append(Shown(page=page.name, line=line, language="link", text=target))
    return tuple(pieces)
