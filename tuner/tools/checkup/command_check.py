"""Checks the training command that a user types behind `--`: its program, its Python, and the modules it imports.

The starters of a command are the words before its script, such as `nohup`, `torchrun` or `python3`.
"""

import os
import re
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from tuner.tools.checkup.finding import Finding, fine, problem, warning
from tuner.tools.checkup.importing import Imported, conflicts, import_all, imported_modules
from tuner.trainers.base import Dependencies
from tuner.trainers.template import missing_script
from tuner.trainers.typed_command import TypedCommand, assigned_variables

_WITH_OWN_PYTHON = {
    *("conda", "mamba", "micromamba", "pixi", "uv", "poetry", "pipenv", "hatch"),
    *("docker", "podman", "apptainer", "singularity", "enroot"),
}
"""Programs that run a command in an environment of their own, whose Python is not the one that the shell finds."""


def check_command(typed: TypedCommand | None, *, on_gpu: bool) -> Iterator[Finding]:
    """Check the program and the script of a typed command, and what it imports; without a command only torch.

    Only what surely keeps the command from training is a problem. A missing module is a warning, because a branch of
    the script may do without it; torch is a problem if the script imports it. `on_gpu`: whether the devices are GPUs.
    Raises TrainerError where the training's Python cannot be started.
    """
    script = typed.known_script if typed else None
    if typed:
        if (started := _program(typed)) is None:
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
    imported = import_all(dependencies, _variables_of(typed) if typed else {})
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


def _program(typed: TypedCommand, word: str | None = None) -> str | None:
    """Return the path of the program that a shell would start for a command, or for another `word` of it.

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
            return _program(typed, named)
        for word in filter(None, typed.starters):  # 2
            path = _program(typed, word)
            if path and _is_text(path) and (beside := Path(path).with_name("python")).is_file():
                return str(beside)
    return shutil.which("python") or shutil.which("python3")  # 3


def _is_text(path: str) -> bool:
    """Return whether a program is a script, as `torchrun` is, and not a binary such as `bash`."""
    with suppress(OSError), Path(path).open("rb") as file:
        return file.read(2) == b"#!"
    return False  # such as sudo, which nobody may read


def _variables_of(typed: TypedCommand) -> dict[str, str]:
    """Return the variables with which a command's Python starts: those set before it, as in `nohup env A=1 python`.

    They let another process of this Python import what the command would. The folder of the script is the first in
    PYTHONPATH, because Python looks there first.
    """
    texts = {**typed.env, **assigned_variables(typed.starters)}
    variables = {name: os.path.expandvars(text) for name, text in texts.items()}
    folders = [variables.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))]
    if typed.known_script:
        folders.insert(0, str(Path(typed.known_script).parent.absolute()))
    return {**variables, "PYTHONPATH": os.pathsep.join(filter(None, folders))}
