"""Measures the house: how big its files and functions are, what they import, and how long its sentences are.

    python -m benchmarks.house
    python -m benchmarks.house --root ../checkout-of-before --json before.json

The script reads the source text and runs none of it, so `--root` may be a checkout of any commit. The names of stored
attributes and fields always come from `tuner/kept` beside this script, so that two commits are measured alike.
"""

import ast
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks import prose

HOME = Path(__file__).resolve().parents[1]
KEPT = "kept"
"""The room in which the stored records live."""
READERS = (
    *("search", "store", "export", "report", "diagnosis", "cli", "checkup", "workers", "recording", "workbench"),
    *("loop", "case_work", "probing", "job", "outcome", "budget", "purpose", "prober", "session_policy"),
)
"""The rooms that handle stored trials. The other rooms read records of their own: a trainer's messages, the columns
of a recorded table."""
PATCHING = ("setattr", "delattr", "patch", "object")
"""The last names of the calls that replace an attribute: `monkeypatch.setattr`, `mock.patch`, `mock.patch.object`."""
_PRIVATE = re.compile(r"(^|\.)_[a-z]\w*$", re.IGNORECASE)


def parsed(folder: Path) -> dict[Path, ast.Module]:
    """Return the syntax tree of each Python file below a folder."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.py"))}


def imports(tree: ast.Module) -> set[str]:
    """Return the modules that a file imports, at its top and inside its functions."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found |= {one.name for one in names}
            case ast.ImportFrom(module=str(module)):
                found.add(module)
    return found


def function_lines(tree: ast.Module) -> Iterator[int]:
    """Yield the number of lines of each function's body, its docstring left out."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
            yield (body[-1].end_lineno or 0) - body[0].lineno + 1


def stored_names(home: Path) -> tuple[set[str], set[str]]:
    """Return the names of stored attributes, and the names of the fields of stored records."""
    attributes: set[str] = set()
    for node in ast.parse((home / "tuner" / KEPT / "names.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign):
            attributes |= {
                one.value
                for one in ast.walk(node.value)
                if isinstance(one, ast.Constant) and isinstance(one.value, str)
            }
    fields = {
        part.target.id
        for tree in parsed(home / "tuner" / KEPT).values()
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        for part in node.body
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
    }
    return attributes, fields


def string_keys(tree: ast.Module, attributes: set[str], fields: set[str]) -> Iterator[tuple[int, str]]:
    """Yield line and key where a file spells a stored name: `record["key"]`, `.get("key")` or `KEY = "key"`."""
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(slice=ast.Constant(value=str(key))) if key in attributes | fields:
                yield node.lineno, key
            case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(key)), *_]) if (
                key in attributes | fields
            ):
                yield node.lineno, key
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name()], value=ast.Constant(value=str(key))) if key in attributes:
                yield node.lineno, key


def patched_private(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and name where a test replaces a private name of the package."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr=called) | ast.Name(id=called)) if called in PATCHING:
                for argument in node.args[:2]:
                    match argument:
                        case ast.Constant(value=str(name)) if _PRIVATE.search(name):
                            yield node.lineno, name
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id=owner), attr=name)]) if owner not in {
                "self",
                "cls",
            } and _PRIVATE.search(name):
                yield node.lineno, name


def placed(places: Iterable[tuple[Path, Iterable[tuple[int, str]]]], root: Path) -> list[str]:
    """Return each place as `path:line name`."""
    return [f"{path.relative_to(root)}:{line} {name}" for path, found in places for line, name in found]


def code(root: Path) -> tuple[dict[str, str | float], list[str]]:
    """Measure the package and its tests; return the measures by name, and the places of what should be none."""
    package, tests = parsed(root / "tuner"), parsed(root / "tests")
    lines = {path: line_count(path) for path in package}
    imported = {path: imports(tree) for path, tree in package.items()}
    own = {path: {name for name in names if name.split(".")[0] == "tuner"} for path, names in imported.items()}
    functions = [count for tree in package.values() for count in function_lines(tree)]
    attributes, fields = stored_names(HOME)
    rooms = {path: path.relative_to(root / "tuner").parts[0].removesuffix(".py") for path in package}
    keys = placed(
        ((path, string_keys(tree, attributes, fields)) for path, tree in package.items() if rooms[path] in READERS),
        root,
    )
    patched = placed(((path, patched_private(tree)) for path, tree in tests.items()), root)
    measures: dict[str, str | float] = {
        "files": len(package),
        "lines": sum(lines.values()),
        "lines of a file, median": median(lines.values()),
        "lines of the longest file": most(lines, root),
        "modules that one file imports, at most": most({path: len(names) for path, names in imported.items()}, root),
        "modules of tuner that one file imports, at most": most(
            {path: len(names) for path, names in own.items()}, root
        ),
        "functions": len(functions),
        "lines of a function's body, median": median(functions),
        "lines of the longest function's body": max(functions),
        "test files": len(tests),
        "test lines": sum(map(line_count, tests)),
        f"string keys of stored records outside tuner/{KEPT}": len(keys),
        "private names patched by tests": len(patched),
    }
    return measures, [*keys, *patched]


def line_count(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def most(counts: dict[Path, int], root: Path) -> str:
    """Return the largest count and the file that has it."""
    path = max(counts, key=counts.__getitem__)
    return f"{counts[path]} ({path.relative_to(root)})"


def main(
    root: Annotated[Path, typer.Option(help="the checkout to measure")] = HOME,
    longest: Annotated[int, typer.Option(help="how many of the longest sentences of each kind to print")] = 0,
    places: Annotated[bool, typer.Option("--places", help="print where each string key and patched name is")] = False,
    out: Annotated[Path | None, typer.Option("--json", help="write all measures to this file")] = None,
) -> None:
    root = root.resolve()
    measures, found = code(root)
    texts = prose.of_house(root)
    spoken = {name: measured for name, sentences in texts.items() if (measured := prose.lengths(sentences))}
    console = Console(width=140)
    table = Table("measure", "value", box=box.MARKDOWN)
    for name, value in measures.items():
        table.add_row(name, value if isinstance(value, str) else f"{value:,g}")
    console.print(table)
    above = f"above {prose.RULE_WORDS} words, %"
    table = Table("text", "sentences", "mean words", "median", "longest", above, box=box.MARKDOWN)
    for name, one in spoken.items():
        cells = (one.sentences, f"{one.mean:.1f}", f"{one.median:g}", one.longest, f"{one.above_rule_pct:.0f}")
        table.add_row(name, *map(str, cells))
    console.print(table)
    for sentences in texts.values() if longest else ():
        for one in sorted(sentences, key=lambda one: -one.words)[:longest]:
            print(f"{one.words} words, {one.path.relative_to(root)}:{one.line}: {one.text}")
    if places:
        print(*found, sep="\n")
    if out:
        spoken_json = {name: asdict(one) for name, one in spoken.items()}
        out.write_text(json.dumps({"code": measures, "sentences": spoken_json, "places": found}, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
