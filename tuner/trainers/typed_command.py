"""A command as a person has typed it: what its script holds and imports."""

import ast
import sys
from pathlib import Path


def text_of(path: str) -> str:
    """Return the text of a script; empty where it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8") if path else ""
    except (OSError, UnicodeDecodeError):
        return ""


def parsed(source: str | bytes) -> ast.Module | None:
    """Return a source of Python as a tree; None where this Python cannot parse it, as where it is nested too deeply."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last is of the parser's own stack
        return None


def imported_modules(script: str) -> tuple[str, ...]:
    """Return the foreign packages that a script imports at its beginning.

    What lies beside the script or in this folder, and what Python itself has, needs no check. A script that this Python
    cannot read imports nothing that is known.
    """
    try:
        tree = parsed(Path(script).read_bytes())
    except OSError:
        return ()
    modules: list[str] = []
    for node in tree.body if tree else ():
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules.append(node.module)
    packages = dict.fromkeys(name.partition(".")[0] for name in modules)
    own = (Path(script).parent, Path())
    return tuple(
        name
        for name in packages
        if name not in sys.stdlib_module_names and not any(_has_module(folder, name) for folder in own)
    )


def _has_module(folder: Path, name: str) -> bool:
    """Return whether a folder has a module or a package; a mere folder, such as one of data, hides no package."""
    return (folder / f"{name}.py").is_file() or (folder / name / "__init__.py").is_file()
