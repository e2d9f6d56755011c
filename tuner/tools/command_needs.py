"""What a typed command needs before it can train here: its program, its script, and the modules that it imports."""

import ast
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

TORCH = "torch"


class Typed(NamedTuple):
    """A command that a person has typed."""

    words: Sequence[str]
    """Its words, the program first."""
    env: Mapping[str, str]
    """The variables that stand before its words."""
    script: str
    """The script of Python that it names; empty where it names none."""


def program(typed: Typed) -> str | None:
    """Return the path of the program that a shell would start for a command; None where there is none."""
    path = typed.env.get("PATH")
    return shutil.which(typed.words[0], path=path if path and "$" not in path else None)


def python_of(started: str | None) -> str | None:
    """Return the Python that runs a program, such as that beside `torchrun`, or else the one that the shell finds.

    None where there is no Python.
    """
    if started and Path(started).name.startswith("python"):
        return started
    beside = Path(started).with_name("python") if started else None
    return str(beside) if beside and beside.is_file() else shutil.which("python") or shutil.which("python3")


def imported_modules(script: str) -> tuple[str, ...]:
    """Return the foreign packages that a script imports at its beginning, and torch.

    What lies beside the script, and what Python itself has, needs no check. A script that this Python cannot read
    imports nothing that is known.
    """
    modules = {TORCH: None}
    try:
        tree = ast.parse(Path(script).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return tuple(modules)
    for node in tree.body:
        if isinstance(node, ast.Import):
            modules |= dict.fromkeys(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules[node.module] = None
    folder = Path(script).parent
    packages = dict.fromkeys(name.partition(".")[0] for name in modules)
    return tuple(
        name
        for name in packages
        if name not in sys.stdlib_module_names and not any((folder / other).exists() for other in (name, f"{name}.py"))
    )
