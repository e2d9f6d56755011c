"""What a typed command needs before it can train here: its program, its Python, and the modules that it imports."""

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

from tuner.trainers.typed_command import TypedCommand, assigned

TORCH = "torch"
_WITH_OWN_PYTHON = {
    *("conda", "mamba", "micromamba", "pixi", "uv", "poetry", "pipenv", "hatch"),
    *("docker", "podman", "apptainer", "singularity", "enroot"),
}
"""Programs that run a command in an environment of their own, whose Python is not the one that the shell finds."""


def program(typed: TypedCommand, word: str | None = None) -> str | None:
    """Return the path of the program that a shell would start for a command, or for another of its words.

    None where there is none.
    """
    path = typed.env.get("PATH")
    return shutil.which(word or typed.words[0], path=path if path and "$" not in path else None)


def python_of(typed: TypedCommand | None) -> str | None:
    """Return the Python that runs a command: the one it names, or that beside a script such as `torchrun`.

    Otherwise, and without a command, it is the Python that the shell finds. None where there is no Python, and where a
    container or another environment has its own.
    """
    if typed and Path(typed.words[0]).name in _WITH_OWN_PYTHON:
        return None
    starters = typed.starters if typed else ()
    if typed and (named := next(filter(_is_python, starters), None)):
        return program(typed, named)
    found = filter(None, (program(typed, word) for word in starters if word) if typed else ())
    beside = (Path(path).with_name("python") for path in found if _is_text(path))
    known = next((str(python) for python in beside if python.is_file()), None)
    return known or shutil.which("python") or shutil.which("python3")


def _is_python(word: str) -> bool:
    """Return whether a word is the name or the path of a Python."""
    return re.fullmatch(r"python[\d.]*", Path(word).name) is not None


def _is_text(path: str) -> bool:
    """Return whether a program is a script, as `torchrun` is, and not a binary such as `bash`."""
    with suppress(OSError), Path(path).open("rb") as file:  # such as sudo, which nobody may read
        return file.read(2) == b"#!"
    return False


def variables_of(typed: TypedCommand) -> dict[str, str]:
    """Return the variables with which a command's Python starts: those before it, also as in `nohup env A=1 python`.

    The folder of the script is in PYTHONPATH, too, as Python looks there first.
    """
    texts = {**typed.env, **assigned(typed.starters)}
    variables = {name: os.path.expandvars(text) for name, text in texts.items()}
    folders = [variables.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))]
    if typed.known_script:
        folders.insert(0, str(Path(typed.known_script).parent.absolute()))
    return {**variables, "PYTHONPATH": os.pathsep.join(filter(None, folders))}
