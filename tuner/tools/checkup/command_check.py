"""Checks what a training starts with: the program of a typed command, its Python, and the modules that it imports.

The versions of modules are compared with the limits that a trainer knows. The starters of a command are the words
before its script, such as `nohup`, `torchrun` or `python3`.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from tuner.errors import TrainerError
from tuner.probe import json_object
from tuner.study.command_words import assigned_variables, missing_script
from tuner.tools.checkup import Finding, fine, problem, warning
from tuner.trainers.base import Dependencies, Limit
from tuner.trainers.typed_command import TypedCommand, syntax_tree

_WITH_OWN_PYTHON = {
    *("conda", "mamba", "micromamba", "pixi", "uv", "poetry", "pipenv", "hatch"),
    *("docker", "podman", "apptainer", "singularity", "enroot"),
}
"""Programs that run a command in an environment of their own, whose Python is not the one that the shell finds."""


class Imported(NamedTuple):
    """The result of importing one module; `version` is None for a module without a version."""

    module: str
    version: str | None = None
    error: str | None = None

    @property
    def missing(self) -> bool:
        """Whether the module itself is missing; False where it is broken or lacks another module."""
        return self.error == f"ModuleNotFoundError: No module named {self.module!r}"


def check_command(typed: TypedCommand | None, *, on_gpu: bool) -> Iterator[Finding]:
    """Check the program and the script of a typed command, and what it imports; without a command only torch.

    Only what surely keeps the command from training is a problem. A missing module is a warning, because a branch of
    the script may do without it; torch is a problem if the script imports it. `on_gpu`: whether the devices are GPUs.
    Raises TrainerError where the training's Python cannot be started.
    """
    script = typed.known_script if typed else None
    if typed:
        if (started := _program_path(typed)) is None:
            yield problem("command", f"there is no program {typed.words[0]!r}; install it, or write its path")
            return
        if missing := missing_script(typed.words, Path()):
            yield problem("command", f"there is no script {missing} here; start `tuner` in its folder")
            return
        yield fine("command", f"{started} runs {script or 'no script of Python that is known here'}")
    if (python := _python_of(typed)) is None:
        yield warning("imports", "no Python of the training is found here; in its environment, doctor checks imports")
        return
    needed = imported_modules(script) if script else ()
    dependencies = Dependencies(python, tuple(dict.fromkeys(("torch", *needed))))
    imported = import_all(dependencies, _start_variables(typed) if typed else {})
    optional = set(dependencies.modules)
    if "torch" in needed:
        optional.remove("torch")
    yield from check_imports(dependencies, imported, optional)
    # the version of such a torch is 2.9.0+cpu, for example
    if on_gpu and any(module.module == "torch" and "+cpu" in (module.version or "") for module in imported):
        finding = problem if "torch" in needed else warning
        yield finding("imports", f"the torch of {python} is built for CPUs alone, and cannot use the cards")


def check_imports(
    dependencies: Dependencies, imported: Sequence[Imported], optional: Collection[str] = ()
) -> Iterator[Finding]:
    """Yield which modules can be imported, in which versions, and which are missing or do not work together.

    A module of `optional` that cannot be imported is a warning.
    """
    python = dependencies.python
    versions = [f"{module.module} {module.version or ''}".strip() for module in imported if module.error is None]
    if versions:
        yield fine("imports", f"{python} imports {', '.join(versions)}")
    missing = [module.module for module in imported if module.missing]
    for finding, is_optional in ((problem, False), (warning, True)):
        if names := [name for name in missing if (name in optional) == is_optional]:
            remedy = "install them there, or activate the environment of the training"
            yield finding("imports", f"{python} lacks {', '.join(names)}; {remedy}")
    for module in imported:
        if module.error is not None and not module.missing:
            finding = warning if module.module in optional else problem
            yield finding("imports", f"{python} cannot import {module.module}: {module.error}")
    for complaint in conflicts(imported, dependencies.limits):
        yield problem("imports", f"{python}: {complaint}")


def _program_path(typed: TypedCommand, word: str | None = None) -> str | None:
    """Return the path of the program that a shell would start for a command's first word, or for another `word` of it.

    None where there is no such program.
    """
    path = typed.env.get("PATH")
    is_literal = path is not None and "$" not in path  # a PATH with `$PATH` extends that of this process
    return shutil.which(word or typed.words[0], path=path if is_literal else None)


def _python_of(typed: TypedCommand | None) -> str | None:
    """Return the Python that runs a command; None where there is none, and where it has an environment of its own.

    1. The Python that the command names.
    2. The Python beside a script that starts the command, such as `torchrun`.
    3. Otherwise, and without a command, the Python that the shell finds.
    """
    if typed and Path(typed.words[0]).name in _WITH_OWN_PYTHON:
        return None
    if typed:
        pythons = (word for word in typed.starters if re.fullmatch(r"python[\d.]*", Path(word).name))
        if named := next(pythons, None):  # 1
            return _program_path(typed, named)
        for word in filter(None, typed.starters):  # 2
            path = _program_path(typed, word)
            if path and _is_script(path) and (beside := Path(path).with_name("python")).is_file():
                return str(beside)
    return shutil.which("python") or shutil.which("python3")  # 3


def _is_script(path: str) -> bool:
    """Return whether a program is a script, as `torchrun` is, and no binary such as `bash`; False if unreadable."""
    with suppress(OSError), Path(path).open("rb") as file:
        return file.read(2) == b"#!"
    return False  # such as sudo, which nobody may read


def _start_variables(typed: TypedCommand) -> dict[str, str]:
    """Return the environment variables with which another process of a command's Python imports what the command would.

    They are those that the command sets before its Python, as in `nohup env A=1 python`, and PYTHONPATH, with the
    folder of the script in front: Python looks there first.
    """
    texts = {**typed.env, **assigned_variables(typed.starters)}
    variables = {name: os.path.expandvars(text) for name, text in texts.items()}
    folders = [variables.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))]
    if typed.known_script:
        folders.insert(0, str(Path(typed.known_script).parent.absolute()))
    return {**variables, "PYTHONPATH": os.pathsep.join(filter(None, folders))}


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
    answers = map(json_object, done.stdout.splitlines())
    imported = [Imported(**answer) for answer in answers if answer.get("module") in modules]
    if len(imported) < len(modules):
        died = f"{python} ended with exit code {done.returncode} while it was imported"
        imported.append(Imported(module=modules[len(imported)], error=died))
    return imported


def conflicts(imported: Sequence[Imported], limits: Sequence[Limit]) -> Iterator[str]:
    """Yield a complaint about each imported module that is newer than a limit of the trainer allows.

    A limit with `beside` applies only where that other module, the companion, is imported in that version.
    """
    versions = {module.module: module.version for module in imported if module.version is not None}
    for limit in limits:
        version = versions.get(limit.module)
        companion, begins = limit.beside or ("", "")  # without a companion, the limit always applies
        applies = limit.beside is None or versions.get(companion, "").startswith(begins)
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
