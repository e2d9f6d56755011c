"""The modules that a training needs: which its script imports, and whether its own Python can import them.

Their versions are compared with the limits that a trainer knows.
"""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from tuner.errors import TrainerError
from tuner.probe import record
from tuner.trainers.base import Dependencies, Limit
from tuner.trainers.typed_command import syntax_tree


class Imported(NamedTuple):
    """The result of importing one module; `version` is None for a module without a version."""

    module: str
    version: str | None = None
    error: str | None = None

    @property
    def missing(self) -> bool:
        """Whether the module itself is missing; False where it is broken or lacks another module."""
        return self.error == f"ModuleNotFoundError: No module named {self.module!r}"


def import_all(dependencies: Dependencies, variables: Mapping[str, str] = MappingProxyType({})) -> list[Imported]:
    """Import each module in the trainer's own Python, which sees no GPU, and return the results in this order.

    Where that Python dies while it imports a module, the result of this module is the last. `dependencies.python` may
    be a script that activates an environment: what the script prints is ignored. `variables` are added to the
    environment. Raises TrainerError where the Python cannot be started, or takes more than 300 s.
    """
    python, modules = dependencies.python, dependencies.modules
    try:
        done = subprocess.run(
            [python, "-c", Path(__file__).with_name("import_all.py").read_text(encoding="utf-8"), *modules],
            env={**os.environ, **variables, "CUDA_VISIBLE_DEVICES": ""},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=300,
            check=False,
        )
    except OSError as error:
        raise TrainerError(f"{python} cannot be started: {error.strerror}; set trainer.python") from error
    except subprocess.TimeoutExpired as error:
        problem = f"{python} has not imported {', '.join(modules)} within {error.timeout:.0f} s"
        raise TrainerError(f"{problem}; import them by hand") from error
    answers = map(record, done.stdout.splitlines())
    imported = [Imported(**answer) for answer in answers if answer.get("module") in modules]
    if len(imported) < len(modules):
        died = f"{python} ended with exit code {done.returncode} while it was imported"
        imported.append(Imported(module=modules[len(imported)], error=died))
    return imported


def conflicts(imported: Sequence[Imported], limits: Sequence[Limit]) -> Iterator[str]:
    """Yield a complaint about each module that is newer than a limit allows.

    A limit with `beside` applies only where that other module is imported in that version.
    """
    versions = {module.module: module.version for module in imported if module.version is not None}
    for limit in limits:
        version = versions.get(limit.module)
        companion, begins = limit.beside or ("", "")  # without another module, "" begins with "": the limit applies
        applies = versions.get(companion, "").startswith(begins)
        if version is not None and applies and _release(version) >= _release(limit.below):
            beside = f" beside {companion} {versions[companion]}" if companion else ""
            yield f"{limit.module} {version} does not work{beside}; install a version below {limit.below}"


def _release(version: str) -> tuple[int, ...]:
    """Return the numbers with which a version begins: `1.12.0rc1` gives 1, 12, 0."""
    release = re.match(r"[\d.]*", version)
    return tuple(int(part) for part in (release[0] if release else "").split(".") if part)


def imported_modules(script: str) -> tuple[str, ...]:
    """Return the packages that a script needs from elsewhere, by its imports outside of functions and other blocks.

    Modules of Python itself are left out, and so are those beside the script or in this folder. There are none for a
    script that this Python cannot read.
    """
    try:
        tree = syntax_tree(Path(script).read_bytes())
    except OSError:
        return ()
    modules: list[str] = []
    for node in tree.body if tree else ():
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:  # not `from .data import …`
            modules.append(node.module)
    foreign: list[str] = []
    for package in dict.fromkeys(name.partition(".")[0] for name in modules):
        own_files = (f"{package}.py", f"{package}/__init__.py")  # a mere folder is no package
        files = (folder / file for folder in (Path(script).parent, Path()) for file in own_files)
        if package not in sys.stdlib_module_names and not any(map(Path.is_file, files)):
            foreign.append(package)
    return tuple(foreign)
